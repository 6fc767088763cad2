"""What `outpace plan` says of another batch size and of a part left out, against what they take.

    python bench/changes.py [--only gpt_flash] [--batch 16]

Of each training in bench/models.py: the time of a step with twice the batch, and of one without a part
that the plan names, both over the step as it is. The truth is timed by the script itself, in turns.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from models import MODELS

SCRIPT = Path(__file__).parent / "models.py"
NEAR = 0.10


def main() -> None:
    """Ask, time, and print a row each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--only", choices=MODELS)
    options = parser.parse_args()
    right = asked = 0
    print("training      change                    told   truth    off")
    for name in MODELS:
        if options.only not in (None, name):
            continue
        for change, told in predicted(name, options.batch).items():
            truth = measured(name, options.batch, change)
            off = told / truth - 1
            right += abs(off) <= NEAR
            asked += 1
            print(
                f"{name:<12}  {change:<22} {told:>6.2f}x {truth:>6.2f}x {100 * off:>+5.0f} %",
                flush=True,
            )
    print(f"{right} of {asked} within {100 * NEAR:.0f} %")


def predicted(name: str, batch: int) -> dict[str, float]:
    """Times that a step takes as long with twice the batch, and without each part that is named."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-m", "outpace", "plan", "--json", "--quiet", "--steps", "1000000",
             str(SCRIPT), name, "--batch", str(batch), "--steps", "1000000"],
            cwd=folder, capture_output=True, text=True, check=False,
        )  # fmt: skip
    if done.returncode != 0:
        sys.exit(done.stderr)
    plan = json.loads(done.stdout)
    whole = plan["forecast"]["finish_s"]["estimate"]
    found = {}
    for option in plan["options"]:
        sped = whole / 3600 / option["hours"]["estimate"]
        part = re.fullmatch(r"without ([\w.]+) \(\w+\)", option["change"])
        if option["change"].startswith("a batch of"):
            found["batch"] = 2 / sped
        elif part is not None and len(found) < 2:
            found[part[1]] = 1 / sped
    return found


def measured(name: str, batch: int, change: str) -> float:
    """The same, timed."""
    done = subprocess.run(
        [sys.executable, str(SCRIPT), name, "--batch", str(batch), "--times", change],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return float(done.stdout)


if __name__ == "__main__":
    main()
