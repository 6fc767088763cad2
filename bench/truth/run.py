"""The truth bench: scripts with a planted bottleneck, and whether `outpace diagnose` finds it.

    python bench/truth/run.py [--quick | --largest | --only parse_json] [--hog] [--shard 1/4]

Each script in cases/ is run with the planted thing in several doses and without it (AMOUNT 0), in
turns: what the plant costs is measured, never assumed. A dose that costs nothing that can be shown
is dropped and listed. Then the script is diagnosed, unmodified, and the verdict is held against the
label in its docstring; so it is without the plant, where the planted cause must not come first.

What is done is kept in .outpace/truth, so that a run that was stopped goes on. --quick takes the
largest dose of a few cases.

What a training is bound by is the plant where it takes half of the time or more. A smaller one has
to be found; what comes before it may only be what the script is bound by without it.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

from cases import HERE, Case, all_cases, beside_a_hog
from peers import PEERS
from results import Truth, results, truths
from timing import time_doses
from verdict import judged, outpace

from outpace.measure.machine import describe

KEPT = HERE.parents[1] / ".outpace" / "truth"
QUICK = ("collate_slow", "control_compute", "memory_elementwise", "outside_sleep", "parse_json")


def kept(name: str, again: bool) -> tuple[Path, Any]:
    """A file of what was done, and what it holds."""
    path = KEPT / f"{name}.json"
    if again or not path.exists():
        return path, None
    return path, json.loads(path.read_text())


def keep(path: Path, found: Any) -> None:
    """Write down what was done."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(json.dumps(found))
    part.replace(path)


def times_of(case: Case, options: argparse.Namespace) -> dict[str, list[float]]:
    """Seconds by amount."""
    name = f"{case.name}-times" + ("-hog" if options.hog else "")
    path, found = kept(name, options.again)
    if found is None or not set(case.amounts) <= set(found):
        with tempfile.TemporaryDirectory() as folder:
            found = time_doses(case, options.rounds, Path(folder))
        keep(path, found)
    return dict(found)


def verdict_on(case: Case, amount: str, repeat: int, options: argparse.Namespace) -> dict[str, Any]:
    """A verdict and how right it is."""
    name = f"{case.name}-{amount or 'control'}-{repeat}" + ("-hog" if options.hog else "")
    path, found = kept(name, options.again)
    if found is None:
        with tempfile.TemporaryDirectory() as folder:
            told = outpace("diagnose", case.path, [amount] if amount else [], Path(folder))
        found = {"case": case.name, "amount": amount, "repeat": repeat, **judged(case, told)}
        keep(path, found)
    return dict(found)


def peers_on(case: Case, amount: str, options: argparse.Namespace) -> dict[str, str]:
    """The bound that each peer names."""
    path, found = kept(f"{case.name}-{amount or 'control'}-peers", options.again)
    if found is None:
        found = {}
        for name, told in PEERS.items():
            with tempfile.TemporaryDirectory() as folder:
                found[name] = told(case.path, [amount] if amount else [], Path(folder))
        keep(path, found)
    return dict(found)


def run_case(
    case: Case, options: argparse.Namespace
) -> tuple[dict[str, list[float]] | None, list[dict[str, Any]]]:
    """Seconds and verdicts of a case."""
    times = times_of(case, options) if case.amounts and case.timed else None
    true: dict[str, Truth] = truths(times) if times else {}
    rows = []
    for amount in ("0", *case.amounts) if case.amounts else ("",):
        truth = true.get(amount)
        if truth is not None and not truth.shown:
            print(f"  {case.name} {amount}: dropped, {truth}", flush=True)
            continue
        for repeat in range(options.repeats):
            row = verdict_on(case, amount, repeat, options)
            rows.append(row)
            if options.peers and repeat == 0 and amount == (case.amounts or ("",))[-1]:
                row["peers"] = peers_on(case, amount, options)
            said = f"{row['bound']}, {row['cause']}"
            gain = f"{row['gain']['speedup']:.2f}x told of it" if row["gain"] else "it is not told"
            print(f"  {case.name} {amount}: {said}; {gain}, truth {truth}", flush=True)
    return times, rows


def chosen(options: argparse.Namespace) -> list[Case]:
    """The cases to run."""
    cases = all_cases()
    if options.only:
        cases = [case for case in cases if case.name in options.only]
    elif options.quick:
        cases = [case for case in cases if case.name in QUICK]
    if options.quick or options.largest:
        cases = [replace(case, amounts=case.amounts[-1:]) for case in cases]
    part, _, parts = options.shard.partition("/")
    return cases[int(part) - 1 :: int(parts)]


def how_run(options: argparse.Namespace) -> str:
    """On what, and how thoroughly."""
    machine = describe()
    doses = "the largest dose of each" if options.largest or options.quick else "all doses"
    return (
        f"{machine.cpu}, {machine.cores} cores, {date.today()}: {doses}, {options.rounds} rounds, "
        f"{options.repeats} verdict each{', beside a busy program' if options.hog else ''}."
    )


def main() -> None:
    """Run what is not kept yet, and write the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a few cases, largest dose")
    parser.add_argument("--largest", action="store_true", help="only the largest dose of each")
    parser.add_argument("--only", action="append", default=[], help="names of cases")
    parser.add_argument(
        "--hog", action="store_true", help="beside a program that keeps a core busy"
    )
    parser.add_argument("--peers", action="store_true", help="ask other tools too")
    parser.add_argument("--rounds", type=int, default=5, help="each dose once, for the truth")
    parser.add_argument("--repeats", type=int, default=1, help="verdicts on each dose")
    parser.add_argument("--output", type=Path, help="a file for the table, as RESULTS.md")
    parser.add_argument("--shard", default="1/1", help="part of the cases, as 2/4")
    parser.add_argument("--again", action="store_true", help="forget what is kept")
    options = parser.parse_args()
    cases = chosen(options)
    times, rows = {}, []
    begun = time.perf_counter()
    for index, case in enumerate(cases):
        gone = (time.perf_counter() - begun) / 60
        print(f"{index + 1} of {len(cases)}: {case.name}, {gone:.0f} minutes gone", flush=True)
        with beside_a_hog(options.hog):
            found, verdicts = run_case(case, options)
        if found is not None:
            times[case.name] = found
        rows += verdicts
    text = results(all_cases(), times, rows, how_run(options))
    print(text)
    if options.output is not None:
        options.output.write_text(text)


if __name__ == "__main__":
    main()
