"""Learning-health rules: scripts with a planted fault, and their healthy twins.

    python bench/truth/health.py [--only rate_too_high] [--seeds 3] [--output bench/truth/LEARNING.md]

Each script in learning/ is diagnosed with its fault (FAULT 1) and without (FAULT 0), under several
seeds. Recall is the share of faults whose rule is told; a false alarm is any rule told of a healthy
twin or of examples/.
"""

from __future__ import annotations

import argparse
import tempfile
from datetime import date
from pathlib import Path
from typing import NamedTuple

from verdict import outpace

from outpace.measure.machine import describe

HERE = Path(__file__).resolve().parent
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


def rules_told(script: Path, args: list[str]) -> list[str]:
    """Names of the rules in the diagnosis of a script."""
    with tempfile.TemporaryDirectory() as name:
        verdict = outpace("diagnose", [str(script), *args], Path(name), "--time", TIME)
    return [found["rule"] for found in verdict["learning"]]


def table(rows: list[Row]) -> str:
    """LEARNING.md."""
    faults = [row for row in rows if row.told is not None]
    found, alarms = sum(row.found for row in faults), sum(bool(row.healthy) for row in rows)
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
        "",
        "| script | seed | fault's rule | told | told of its healthy twin |",
        "| --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        told = "-" if row.told is None else ", ".join(row.told) or "nothing"
        missed = "" if row.told is None or row.found else " (missed)"
        healthy = ", ".join(row.healthy) or "nothing"
        wanted = row.wanted or "-"
        lines.append(f"| {row.name} | {row.seed} | {wanted} | {told}{missed} | {healthy} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Print a row a script, and recall and false alarms."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--output", type=Path, help="a file for the table, as LEARNING.md")
    options = parser.parse_args()
    rows: list[Row] = []
    for path in sorted((HERE / "learning").glob("*.py")):
        if options.only and path.stem not in options.only:
            continue
        wanted = path.read_text().partition("rule: ")[2].partition("\n")[0]
        for seed in range(options.seeds):
            told, twin = (rules_told(path, [fault, str(seed)]) for fault in "10")
            rows.append(Row(path.stem, seed, wanted, told, twin))
            print(f"{path.stem} #{seed}: {told}; healthy twin: {twin}", flush=True)
    for path in sorted(EXAMPLES.glob("*.py")) if not options.only else ():
        if path.stem.startswith("make_"):
            continue
        rows.append(Row(path.stem, 0, None, None, rules_told(path, [])))
        print(f"{path.stem}: {rows[-1].healthy}", flush=True)
    text = table(rows)
    print(text)
    if options.output is not None:
        options.output.write_text(text)


if __name__ == "__main__":
    main()
