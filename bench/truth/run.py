"""The truth bench: scripts with a planted bottleneck, and whether `outpace diagnose` finds it.

    python bench/truth/run.py [--quick] [--only parse_json] [--repeats 3] [--again]

Each script in cases/ is run with the planted thing in several doses and without it (AMOUNT 0), in
pairs: what the plant costs is measured in the same run, never assumed. A dose whose interval
includes no loss at all is dropped and listed. Then the script is diagnosed, unmodified, and the
verdict is held against the label in its docstring. Results are kept in .outpace/truth, so that a
run that was stopped goes on; the table is written to RESULTS.md.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
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
    )


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


def diagnosed(case: Case, amount: str, folder: Path) -> dict[str, Any]:
    """What `outpace diagnose --json` says."""
    command = [sys.executable, "-m", "outpace", "diagnose", "--json", "--session",
               str(folder / "session"), str(case.path), *([amount] if amount else [])]  # fmt: skip
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise OutpaceError(f"{case.name} {amount}: exit code {done.returncode}\n{done.stderr}")
    return dict(json.loads(done.stdout))


def judged(case: Case, verdict: dict[str, Any]) -> dict[str, Any]:
    """The verdict against the label."""
    findings = verdict["findings"]
    top = findings[0] if findings else {"bound": "none", "cause": None, "where": None}
    same = [f for f in findings if (f["bound"], f["cause"]) == (case.bound, case.cause)]
    line = int((top["where"] or ":0").rsplit(":", 1)[1])
    advised = {advice["name"] for finding in findings for advice in finding["remedies"]}
    return {
        "bound": top["bound"],
        "cause": top["cause"],
        "where": top["where"],
        "bound_right": top["bound"] == case.bound,
        "cause_right": (top["bound"], top["cause"]) == (case.bound, case.cause),
        "line_right": line in case.lines,
        "gain": same[0]["gain"] if same else None,
        "advised": sorted(advised),
        "advice_right": not case.remedies or bool(advised & set(case.remedies)),
        "false_alarm": case.control and top["bound"] not in (case.bound, "none"),
    }


def one(case: Case, amount: str, repeat: int, pairs: int) -> dict[str, Any]:
    """Truth and verdict of one dose, from what is kept where it was run before."""
    kept = KEPT / f"{case.name}-{amount or 'control'}-{repeat}.json"
    if kept.exists():
        return dict(json.loads(kept.read_text()))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        row: dict[str, Any] = {"case": case.name, "amount": amount, "repeat": repeat}
        if amount:
            row["truth"] = truth_of(case, amount, pairs, folder)
        if not amount or (row["truth"][1] > 1 and row["truth"][0] >= LEAST):
            row.update(judged(case, diagnosed(case, amount, folder)))
    KEPT.mkdir(parents=True, exist_ok=True)
    kept.write_text(json.dumps(row))
    return row


def share(rows: list[dict[str, Any]], key: str) -> str:
    """Right ones of all."""
    right = sum(bool(row[key]) for row in rows)
    return f"{right} of {len(rows)}" if rows else "-"


def table(rows: list[dict[str, Any]]) -> str:
    """RESULTS.md."""
    judged_rows = [row for row in rows if "bound" in row]
    dropped = [row for row in rows if "bound" not in row]
    planted = [row for row in judged_rows if row["amount"]]
    errors = [
        abs(math.log(row["gain"]["speedup"] / row["truth"][0]))
        for row in planted
        if row["gain"] and row["truth"][0]
    ]
    lines = [
        "# The truth bench",
        "",
        "Made by `python bench/truth/run.py`. Truth is measured in pairs in the same run.",
        "",
        f"- bound right: {share(planted, 'bound_right')}",
        f"- cause right: {share(planted, 'cause_right')}",
        f"- file:line right: {share(planted, 'line_right')}",
        f"- an accepted remedy is advised: {share(planted, 'advice_right')}",
        f"- false alarms on controls: {share([r for r in judged_rows if not r['amount']], 'false_alarm')}",
        "- median |ln(gain told / truth)|: "
        + (f"{statistics.median(errors):.2f} over {len(errors)}" if errors else "-"),
        "",
        "| case | amount | truth | told | gain told | where | advised |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in judged_rows:
        truth = "{:.2f}x [{:.2f}, {:.2f}]".format(*row["truth"]) if row["amount"] else "control"
        gain = "{speedup:.2f}x [{low:.2f}, {high:.2f}]".format(**row["gain"]) if row["gain"] else ""
        mark = "" if row["cause_right"] else " (wrong)"
        line = f"{os.path.basename(row['where'] or '')}{'' if row['line_right'] else ' (wrong)'}"
        lines.append(
            f"| {row['case']} | {row['amount']} | {truth} | {row['bound']}, {row['cause']}{mark} | "
            f"{gain} | {line} | {', '.join(row['advised'])} |"
        )
    if dropped:
        names = ", ".join(f"{row['case']} {row['amount']}" for row in dropped)
        lines += ["", f"Dropped, as the plant cost nothing that could be shown: {names}."]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run what is not kept yet, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="the largest dose of each case, once")
    parser.add_argument("--only", action="append", default=[], help="names of cases")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--again", action="store_true", help="forget what is kept")
    options = parser.parse_args()
    cases = [read_case(path) for path in sorted((HERE / "cases").glob("*.py"))]
    cases = [case for case in cases if not options.only or case.name in options.only]
    rows = []
    for case in cases:
        amounts = case.amounts[-1:] if options.quick else case.amounts
        for amount in amounts or ("",):
            for repeat in range(1 if options.quick else options.repeats):
                if options.again:
                    (KEPT / f"{case.name}-{amount or 'control'}-{repeat}.json").unlink(True)
                row = one(case, amount, repeat, options.pairs)
                rows.append(row)
                said = f"{row['bound']}, {row['cause']}" if "bound" in row else "dropped"
                print(f"{case.name} {amount} #{repeat}: {said}", flush=True)
    if not options.only:
        (HERE / "RESULTS.md").write_text(table(rows))
    print(table(rows))


if __name__ == "__main__":
    main()
