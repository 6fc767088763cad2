"""Whether what is advised pays: each case is tuned, and every trial held against its prediction.

    python bench/truth/advice.py [--only parse_json] [--time 60s]

The largest dose of a case is taken. Harmful is a remedy that is predicted to gain and measures less
than 0.97x, with an interval that leaves no doubt; such a trial costs a tuning its time, and a
reader of `diagnose` who believes it more than that.
"""

from __future__ import annotations

import argparse
import math
import statistics
import tempfile
from pathlib import Path
from typing import Any

from cases import all_cases
from verdict import outpace

HARMFUL = 0.97


def main() -> None:
    """Print a line a trial, and how many were harmful."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", action="append", default=[], help="names of cases")
    parser.add_argument("--time", default="60s", help="for the tuning of each")
    options = parser.parse_args()
    trials: list[dict[str, Any]] = []
    for case in all_cases():
        if options.only and case.name not in options.only:
            continue
        with tempfile.TemporaryDirectory() as name:
            recipe = ("--time", options.time, "--recipe", f"{name}/recipe.toml")
            told = outpace("tune", case.target("".join(case.amounts[-1:])), Path(name), *recipe)
        for trial in told["trials"]:
            predicted, measured = trial["predicted"], trial["measured"]
            if predicted is None or measured is None:
                continue
            trials.append(trial)
            print(
                f"{case.name}: {trial['remedy']} predicted {predicted['speedup']:.2f}x, measured "
                f"{measured['speedup']:.2f}x [{measured['low']:.2f}, {measured['high']:.2f}]"
                f"{', HARMFUL' if harmful(trial) else ''}",
                flush=True,
            )
    errors = [abs(math.log(t["predicted"]["speedup"] / t["measured"]["speedup"])) for t in trials]
    print(
        f"{sum(map(harmful, trials))} of {len(trials)} harmful; median of abs(ln(predicted / "
        f"measured)) {statistics.median(errors) if errors else math.nan:.2f}"
    )


def harmful(trial: dict[str, Any]) -> bool:
    """Whether it was promised to pay and does harm."""
    measured = trial["measured"]
    low = measured["speedup"] < HARMFUL and measured["high"] < 1
    return bool(trial["predicted"]["speedup"] > 1 and low)


if __name__ == "__main__":
    main()
