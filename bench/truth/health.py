"""Learning-health rules: scripts with a planted fault, and their healthy twins.

    python bench/truth/health.py [--only rate_too_high] [--seeds 3]

Each script in learning/ is diagnosed with its fault (FAULT 1) and without (FAULT 0), under several
seeds. Recall is the share of faults whose rule is told; a false alarm is any rule told of a healthy
twin or of examples/.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from verdict import outpace

HERE = Path(__file__).resolve().parent
EXAMPLES = HERE.parents[1] / "examples"
TIME = "8"
"""seconds for experiments"""


def rules_told(script: Path, args: list[str]) -> list[str]:
    """Names of the rules in the diagnosis of a script."""
    with tempfile.TemporaryDirectory() as name:
        verdict = outpace("diagnose", [str(script), *args], Path(name), "--time", TIME)
    return [found["rule"] for found in verdict["learning"]]


def main() -> None:
    """Print a row a script, and recall and false alarms."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    faults = found = healthy = alarms = 0
    for path in sorted((HERE / "learning").glob("*.py")):
        if options.only and path.stem not in options.only:
            continue
        wanted = path.read_text().partition("rule: ")[2].partition("\n")[0]
        for seed in range(options.seeds):
            told = rules_told(path, ["1", str(seed)])
            twin = rules_told(path, ["0", str(seed)])
            faults, found = faults + 1, found + (wanted in told)
            healthy, alarms = healthy + 1, alarms + bool(twin)
            mark = "found" if wanted in told else "MISSED"
            print(f"{path.stem} #{seed}: {mark} {told}; healthy twin: {twin}", flush=True)
    for path in sorted(EXAMPLES.glob("*.py")) if not options.only else ():
        told = rules_told(path, [])
        healthy, alarms = healthy + 1, alarms + bool(told)
        print(f"{path.stem}: {told}", flush=True)
    print(f"recall {found} of {faults}; false alarms {alarms} of {healthy}")


if __name__ == "__main__":
    main()
