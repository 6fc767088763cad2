"""Whether what is advised pays: each case is tuned, and every trial held against its prediction.

    python bench/truth/advice.py [--only parse_json] [--time 60s] [--output bench/truth/ADVICE.md]

The largest dose of a case is taken. A remedy is advised where its predicted gain is 1 or more in its whole
interval; others are tried for what they may give. Harmful is one that is predicted to gain and measures less
than 0.97x; surely so where its whole interval is below 1. Such a trial costs a tuning its time, and a reader
of `diagnose` who believes it, where it is advised, more than that. What is done is kept in .outpace/truth,
so that a run that was stopped goes on, by the same code of outpace.
"""

from __future__ import annotations

import argparse
import functools
import math
import statistics
from datetime import date
from pathlib import Path
from typing import Any

from cases import Case, all_cases
from keeping import Kept, code_of, digest
from verdict import outpace

from outpace.measure.machine import describe

HARMFUL = 0.97


def trials_of(case: Case, seconds: str, folder: Path) -> list[dict[str, Any]]:
    """What a tuning tried of what it had predicted, and what that measured."""
    recipe = ("--time", seconds, "--recipe", f"{folder}/recipe.toml")
    told = outpace("tune", case.target("".join(case.amounts[-1:])), folder, *recipe)
    return [
        {"case": case.name} | {key: trial[key] for key in ("remedy", "predicted", "measured")}
        for trial in told["trials"]
        if trial["predicted"] is not None and trial["measured"] is not None
    ]


def harmful(trial: dict[str, Any]) -> bool:
    """Whether it was promised to pay and measures less than nothing."""
    return bool(trial["predicted"]["speedup"] > 1 and trial["measured"]["speedup"] < HARMFUL)


def advised(trial: dict[str, Any]) -> bool:
    """Whether `diagnose` would say so."""
    return bool(trial["predicted"]["speedup"] > 1 and trial["predicted"]["low"] >= 1)


def surely(trial: dict[str, Any]) -> bool:
    """Whether it does harm beyond the noise."""
    return bool(harmful(trial) and trial["measured"]["high"] < 1)


def counts(trials: list[dict[str, Any]]) -> str:
    """How many do harm."""
    lost, sure = sum(map(harmful, trials)), sum(map(surely, trials))
    return f"{lost} of {len(trials)} measured below {HARMFUL}x, {sure} with all of the interval below 1"


def table(trials: list[dict[str, Any]], tuned: int, failed: list[str]) -> str:
    """ADVICE.md; of some scripts nothing that was advised can be tried."""
    errors = [abs(math.log(t["predicted"]["speedup"] / t["measured"]["speedup"])) for t in trials]
    middle = statistics.median(errors) if errors else math.nan
    machine = describe()
    told = [trial for trial in trials if advised(trial)]
    others = [trial for trial in trials if not advised(trial)]
    lines = [
        "# What is advised, tried",
        "",
        "Made by `python bench/truth/advice.py`: each script of the truth bench tuned with the largest",
        "dose of its plant.",
        "",
        f"{machine.cpu}, {machine.cores} cores, {date.today()}: {tuned} scripts.",
        "",
        f"Advised: {counts(told)}.",
        f"Tried for what they may give: {counts(others)}.",
        f"Median of abs(ln(predicted / measured)): {middle:.2f}.",
        "",
        "| case | remedy | predicted | measured | advised | harmful |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for trial in trials:
        form = "{speedup:.2f}x [{low:.2f}, {high:.2f}]".format
        gain, predicted = form(**trial["measured"]), form(**trial["predicted"])
        harm = "surely" if surely(trial) else "yes" if harmful(trial) else ""
        yes = "yes" if advised(trial) else ""
        lines.append(
            f"| {trial['case']} | {trial['remedy']} | {predicted} | {gain} | {yes} | {harm} |"
        )
    if failed:
        lines += ["", f"Failed: {', '.join(failed)}."]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Tune what is not kept yet, and write the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", action="append", default=[], help="names of cases")
    parser.add_argument("--time", default="60s", help="for the tuning of each")
    parser.add_argument("--output", type=Path, help="a file for the table, as ADVICE.md")
    parser.add_argument("--again", action="store_true", help="forget what is kept")
    options = parser.parse_args()
    kept, code = Kept(options.again), code_of("tune")
    trials: list[dict[str, Any]] = []
    failed: list[str] = []
    cases = [case for case in all_cases() if not options.only or case.name in options.only]
    for case in cases:
        print(case.name, flush=True)
        try:
            trials += kept.once(
                f"trials/{code}-{case.name}-{digest([case.path])}-{options.time}",
                functools.partial(trials_of, case, options.time),
            )
        except RuntimeError as error:
            print(f"  FAILED, {error}", flush=True)
            failed.append(case.name)
    text = table(trials, len(cases) - len(failed), failed)
    print(text)
    if options.output is not None:
        options.output.write_text(text)


if __name__ == "__main__":
    main()
