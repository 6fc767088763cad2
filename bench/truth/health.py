"""Learning-health rules: scripts with a planted fault, and their healthy twins.

    python bench/truth/health.py [--only rate_too_high] [--seeds 3] [--output bench/truth/LEARNING.md]

Each script in learning/ is diagnosed with its fault (FAULT 1) and without (FAULT 0), under several
seeds. Recall is the share of faults whose rule is told; a false alarm is any rule told of a healthy
twin or of examples/. Other rules that are told beside the fault's own are counted: some follow from
the fault, some are wrong. What is done is kept in .outpace/truth, so that a run that was stopped goes
on, by the same code of outpace.
"""

from __future__ import annotations

import argparse
from collections import Counter
from datetime import date
from pathlib import Path
from typing import NamedTuple

from cases import HERE
from keeping import Kept, code_of, digest
from verdict import outpace

from outpace.measure.machine import describe

EXAMPLES = HERE.parents[1] / "examples"
TIME = "8"
"""seconds for experiments"""


class Row(NamedTuple):
    """A script under one seed. ``wanted``, ``told``: None for an example, which has no fault."""

    name: str
    seed: int
    wanted: str | None
    told: list[str] | None
    healthy: list[str]
    """rules told of it without its fault"""

    @property
    def found(self) -> bool:
        """Whether the fault's rule is told."""
        return self.told is not None and self.wanted in self.told

    @property
    def others(self) -> list[str]:
        """Rules told of the fault that are not its own."""
        return [rule for rule in self.told or () if rule != self.wanted]


def rules_told(script: Path, args: list[str], folder: Path) -> list[str]:
    """Names of the rules in the diagnosis of a script."""
    verdict = outpace("diagnose", [str(script), *args], folder, "--time", TIME)
    return [found["rule"] for found in verdict["learning"]]


def table(rows: list[Row]) -> str:
    """LEARNING.md."""
    faults = [row for row in rows if row.told is not None]
    found, alarms = sum(row.found for row in faults), sum(bool(row.healthy) for row in rows)
    beside = sum(bool(row.others) for row in faults)
    by_rule = Counter(rule for row in rows for rule in row.healthy)
    machine = describe()
    lines = [
        "# The rules of learning health",
        "",
        "Made by `python bench/truth/health.py`: scripts with a planted fault, and the same without.",
        "Nothing here is held out.",
        "",
        f"{machine.cpu}, {machine.cores} cores, {date.today()}.",
        "",
        f"Faults found: {found} of {len(faults)}. False alarms: {alarms} of {len(rows)}.",
        f"Other rules told beside the fault's own: of {beside} of {len(faults)}.",
        "",
        "| script | seed | fault's rule | found | other rules told | told of its healthy twin |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        found_it = "-" if row.told is None else "yes" if row.found else "missed"
        others = "-" if row.told is None else ", ".join(row.others) or "none"
        healthy = ", ".join(row.healthy) or "nothing"
        cells = (row.name, str(row.seed), row.wanted or "-", found_it, others, healthy)
        lines.append(f"| {' | '.join(cells)} |")
    lines += ["", "False alarms by rule, of healthy twins and examples:", ""]
    lines += ["| rule | false alarms |", "| --- | --- |"]
    lines += [f"| {rule} | {count} of {len(rows)} |" for rule, count in by_rule.most_common()]
    if not by_rule:
        lines += ["| none | |"]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Print a row a script, and recall and false alarms."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--output", type=Path, help="a file for the table, as LEARNING.md")
    parser.add_argument("--again", action="store_true", help="forget what is kept")
    options = parser.parse_args()
    kept, code = Kept(options.again), code_of("diagnose")

    def told_of(path: Path, *args: str) -> list[str]:
        name = "-".join((code, path.stem, digest([path]), *args))
        return list(kept.once(f"learning/{name}", lambda folder: rules_told(path, [*args], folder)))

    rows: list[Row] = []
    for path in sorted((HERE / "learning").glob("*.py")):
        if options.only and path.stem not in options.only:
            continue
        wanted = path.read_text().partition("rule: ")[2].partition("\n")[0]
        for seed in range(options.seeds):
            told, twin = (told_of(path, fault, str(seed)) for fault in "10")
            rows.append(Row(path.stem, seed, wanted, told, twin))
            print(f"{path.stem} #{seed}: {told}; healthy twin: {twin}", flush=True)
    for path in sorted(EXAMPLES.glob("*.py")) if not options.only else ():
        if path.stem.startswith("make_"):
            continue
        rows.append(Row(path.stem, 0, None, None, told_of(path)))
        print(f"{path.stem}: {rows[-1].healthy}", flush=True)
    text = table(rows)
    print(text)
    if options.output is not None:
        options.output.write_text(text)


if __name__ == "__main__":
    main()
