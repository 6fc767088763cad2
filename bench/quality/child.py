"""One contender on one workload, in a process of its own.

`python child.py JOB.json`; the answer is written beside it, as a contender may print what it likes.
"""

import json
import os
import sys
import time
from pathlib import Path

from contenders import load as contender
from race import Race
from workload import load, split_of


def main() -> None:
    """Run it and go, however much is still under way."""
    path = Path(sys.argv[1])
    job = json.loads(path.read_text())
    train = contender(job["contender"]).train
    given = {key: job[key] for key in ("seed", "budget_s", "target", "rate", "steps")}
    race = Race(load(job["work"]), split_of(job["work"], Path(job["data"])), **given)
    train(race)
    answer = {
        "curve": race.curve,
        "wall_s": race.elapsed_s,
        "judging_s": race.judging_s,
        "notes": race.notes,
        "at": time.time(),
    }
    path.with_suffix(".answer").write_text(json.dumps(answer))
    os._exit(0)


if __name__ == "__main__":
    main()
