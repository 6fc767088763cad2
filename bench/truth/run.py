"""The truth bench: scripts with a planted bottleneck, and whether `outpace diagnose` finds it.

    python bench/truth/run.py [--quick] [--only parse_json] [--repeats 3] [--again]

Each script in cases/ is run with the planted thing in several doses and without it (AMOUNT 0), in
pairs: what the plant costs is measured in the same run, never assumed. A dose whose interval
includes no loss at all is dropped and listed. Then the script is diagnosed, unmodified, and the
verdict is held against the label in its docstring; so it is without the plant, where the planted
cause must not come first. Results are kept in .outpace/truth, so that a run that was stopped goes
on; the table is written to RESULTS.md.

What a training is bound by is the plant where it takes half of the time or more. A smaller one has
to be found; what comes before it may only be what the script is bound by without it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from outpace.errors import OutpaceError
from outpace.measure.statistics import paired_gain

HERE = Path(__file__).resolve().parent
KEPT = HERE.parents[1] / ".outpace" / "truth"
LEAST = 1.05
"""cost of a plant below which it is not one"""
TIMER = """
import atexit, json, runpy, sys, time
out, script, *args = sys.argv[1:]
import torch
times = []
from torch.optim.optimizer import register_optimizer_step_post_hook
register_optimizer_step_post_hook(lambda *_: times.append(time.perf_counter()))
sys.argv = [script, *args]
atexit.register(lambda: json.dump(times, open(out, "w")))
runpy.run_path(script, run_name="__main__")
"""


@dataclass(frozen=True)
class Case:
    """A script and the truth about it, from its docstring."""

    path: Path
    about: str
    bound: str
    cause: str
    lines: tuple[int, ...]
    remedies: tuple[str, ...]
    amounts: tuple[str, ...]
    control: bool
    timed: bool
    """the plant costs time (a leak costs memory)"""
    hog: bool
    """another program keeps a core busy meanwhile"""

    @property
    def name(self) -> str:
        """The script's name."""
        return self.path.stem


def read_case(path: Path) -> Case:
    """A case by its docstring."""
    text = path.read_text()
    head, _, body = text.partition('"""')[2].partition('"""')
    facts = dict(line.split(": ", 1) for line in head.split("\n") if ": " in line[:12])
    skipped = text.count("\n", 0, text.index(body))
    lines = [
        skipped + index
        for index, line in enumerate(body.split("\n"), start=1)
        if facts["line"] in line
    ]
    bound, cause = facts["truth"].split()
    return Case(
        path,
        head.split("\n", 1)[0],
        bound,
        cause,
        tuple(lines),
        tuple(facts.get("remedies", "").split()),
        tuple(facts.get("amounts", "").split()),
        "control" in facts,
        "untimed" not in facts,
        facts.get("beside") == "hog",
    )


@contextlib.contextmanager
def beside(case: Case) -> Iterator[None]:
    """What else the machine does."""
    if not case.hog:
        yield
        return
    hog = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        hog.kill()
        hog.wait()


def timed(case: Case, amount: str, folder: Path) -> tuple[float, float]:
    """Seconds of the whole run, and of a step on average from the tenth on."""
    timer, out = folder / "timer.py", folder / "times.json"
    timer.write_text(TIMER)
    begun = time.perf_counter()
    command = [sys.executable, str(timer), str(out), str(case.path), amount]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    whole = time.perf_counter() - begun
    times = json.loads(out.read_text())[10:]
    return whole, (times[-1] - times[0]) / (len(times) - 1)


def truth_of(case: Case, amount: str, pairs: int, folder: Path) -> tuple[float, float, float]:
    """What the run, or a step, would gain without the plant: estimate and interval."""
    planted, fixed = [], []
    for index in range(pairs):
        for side in (0, 1) if index % 2 == 0 else (1, 0):
            whole, step = timed(case, ("0", amount)[side], folder)
            (fixed, planted)[side].append(whole if case.bound == "outside" else step)
    gain = paired_gain(planted, fixed)
    return gain.speedup, gain.low, gain.high


def diagnosed(script: Path, args: list[str], folder: Path, *options: str) -> dict[str, Any]:
    """What `outpace diagnose --json` says."""
    command = [sys.executable, "-m", "outpace", "diagnose", "--json", *options, "--session"]
    command += [str(folder / "session"), str(script), *args]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise OutpaceError(f"{script.name} {args}: exit code {done.returncode}\n{done.stderr}")
    return dict(json.loads(done.stdout))


def judged(case: Case, verdict: dict[str, Any]) -> dict[str, Any]:
    """The verdict against the label."""
    findings = verdict["findings"]
    nothing = {"bound": "none", "cause": None, "where": None, "gain": None}
    top = findings[0] if findings else nothing
    same = [f for f in findings if (f["bound"], f["cause"]) == (case.bound, case.cause)]
    planted = same[0] if same else nothing
    line = int((planted["where"] or ":0").rsplit(":", 1)[1])
    advised = {advice["name"] for finding in findings for advice in finding["remedies"]}
    return {
        "bound": top["bound"],
        "cause": top["cause"],
        "where": planted["where"],
        "top": [top["bound"], top["cause"]] == [case.bound, case.cause],
        "found": bool(same),
        "line_right": line in case.lines,
        "gain": planted["gain"],
        "advised": sorted(advised),
        "advice_right": not case.remedies or bool(advised & set(case.remedies)),
    }


def right(row: dict[str, Any], fixed: dict[str, Any]) -> tuple[bool, bool]:
    """Whether bound and cause are right, given the verdict without the plant."""
    bound = row["truth_is"][0]
    if row["truth"] is None:
        return row["found"], row["found"]  # it costs no time: what is bound by time comes first
    half = row["truth"][0] >= 2
    if half or row["top"]:
        return row["bound"] == bound, row["top"]
    as_without = row["bound"] in (bound, fixed["bound"])
    return as_without, row["found"] and (row["bound"] == bound or row["cause"] == fixed["cause"])


def one(case: Case, amount: str, repeat: int, pairs: int) -> dict[str, Any]:
    """Truth and verdict of one dose, from what is kept where it was run before."""
    kept = KEPT / f"{case.name}-{amount or 'control'}-{repeat}.json"
    if kept.exists():
        return dict(json.loads(kept.read_text()))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        row: dict[str, Any] = {
            "case": case.name,
            "amount": amount,
            "repeat": repeat,
            "truth_is": [case.bound, case.cause],
            "truth": None,
        }
        planted = amount not in ("", "0")
        if planted and case.timed:
            row["truth"] = truth_of(case, amount, pairs, folder)
        if row["truth"] is None or (row["truth"][1] > 1 and row["truth"][0] >= LEAST):
            with beside(case):
                told = diagnosed(case.path, [amount] if amount else [], folder)
            row.update(judged(case, told))
    KEPT.mkdir(parents=True, exist_ok=True)
    kept.write_text(json.dumps(row))
    return row


def alarm(row: dict[str, Any]) -> bool:
    """Whether a control is told to be bound by something else, or a script by what is not in it."""
    if row["amount"] == "":
        return row["bound"] not in (row["truth_is"][0], "none")
    return row["top"] and row["truth_is"][0] != "compute"


def share(marks: list[bool]) -> str:
    """Right ones of all."""
    return f"{sum(marks)} of {len(marks)}" if marks else "-"


def table(rows: list[dict[str, Any]], cases: list[Case]) -> str:
    """RESULTS.md."""
    told = [row for row in rows if "bound" in row]
    clean = [row for row in told if row["amount"] in ("", "0")]
    without = {row["case"] for row in clean}
    planted = [row for row in told if row["amount"] not in ("", "0") and row["case"] in without]
    told = clean + planted
    fixed = {row["case"]: row for row in clean}
    marks = [right(row, fixed[row["case"]]) for row in planted]
    alarms = [alarm(row) for row in clean]
    errors = [
        abs(math.log(row["gain"]["speedup"] / row["truth"][0]))
        for row in planted
        if row["gain"] and row["truth"]
    ]
    covered = [
        row["gain"]["low"] <= row["truth"][0] <= row["gain"]["high"]
        for row in planted
        if row["gain"] and row["truth"]
    ]
    lines = [
        "# The truth bench",
        "",
        "Made by `python bench/truth/run.py`. What a plant costs is measured in pairs in the same",
        "run; gains told are those of the planted cause.",
        "",
        f"- scripts run: {len({row['case'] for row in rows})} of {len(cases)}",
        f"- bound right: {share([bound for bound, _ in marks])}",
        f"- cause right: {share([cause for _, cause in marks])}",
        f"- planted cause found at all: {share([row['found'] for row in planted])}",
        f"- file:line right, of those found: {share([r['line_right'] for r in planted if r['found']])}",
        f"- an accepted remedy is advised: {share([row['advice_right'] for row in planted])}",
        f"- false alarms on controls and on scripts without their plant: {share(alarms)}",
        "- median |ln(gain told / truth)|: "
        + (f"{statistics.median(errors):.2f} over {len(errors)}" if errors else "-"),
        f"- truth within the interval told: {share(covered)}",
        "",
        "| case | amount | truth | verdict | gain told | where | advised |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    verdicts = {id(row): mark for row, mark in zip(planted, marks, strict=True)}
    verdicts |= {id(row): (not false, True) for row, false in zip(clean, alarms, strict=True)}
    for row in told:
        truth = "{:.2f}x [{:.2f}, {:.2f}]".format(*row["truth"]) if row["truth"] else "-"
        gain = "{speedup:.2f}x [{low:.2f}, {high:.2f}]".format(**row["gain"]) if row["gain"] else ""
        mark = "" if all(verdicts[id(row)]) else " (wrong)"
        line = os.path.basename(row["where"] or "")
        line += " (wrong)" if row["found"] and not row["line_right"] else ""
        amount = row["amount"] or "control"
        lines.append(
            f"| {row['case']} | {amount} | {truth} | {row['bound']}, {row['cause']}{mark} | "
            f"{gain} | {line} | {', '.join(row['advised'])} |"
        )
    dropped = [f"{row['case']} {row['amount']}" for row in rows if "bound" not in row]
    if dropped:
        lines += [
            "",
            f"Dropped, as the plant cost nothing that could be shown: {', '.join(dropped)}.",
        ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run what is not kept yet, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="each case once: without, and in its largest dose"
    )
    parser.add_argument("--only", action="append", default=[], help="names of cases")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--table", action="store_true", help="only write the table of what is kept")
    parser.add_argument("--again", action="store_true", help="forget what is kept")
    options = parser.parse_args()
    cases = [read_case(path) for path in sorted((HERE / "cases").glob("*.py"))]
    cases = [case for case in cases if not options.only or case.name in options.only]
    if options.table:
        names = {case.name for case in cases}
        kept = [json.loads(path.read_text()) for path in sorted(KEPT.glob("*.json"))]
        (HERE / "RESULTS.md").write_text(
            table([row for row in kept if row["case"] in names], cases)
        )
        return
    rows = []
    for case in cases:
        amounts = case.amounts[-1:] if options.quick else case.amounts
        for amount in ("0", *amounts) if amounts else ("",):
            for repeat in range(1 if options.quick else options.repeats):
                if options.again:
                    (KEPT / f"{case.name}-{amount or 'control'}-{repeat}.json").unlink(True)
                row = one(case, amount, repeat, options.pairs)
                rows.append(row)
                said = f"{row['bound']}, {row['cause']}" if "bound" in row else "dropped"
                print(f"{case.name} {amount} #{repeat}: {said}", flush=True)
    if not options.only:
        (HERE / "RESULTS.md").write_text(table(rows, cases))
    print(table(rows, cases))


if __name__ == "__main__":
    main()
