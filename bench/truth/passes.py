"""Passes made before, maybe on another machine, that go into the table beside those of this run.

A machine's pace changes within hours, and another's is another: what is told in a pass is only held
against times of that pass and that machine.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from cases import Case
from keeping import digest, written
from results import Row, Truth, truth_of

SEEDS = (0, 1, 2)
"""passes that take every dose of every case"""


class Pass(NamedTuple):
    """A seed's pass over the cases, on one machine, by one code."""

    cpu: str
    code: str
    true: dict[tuple[str, str, int], Truth]
    rows: list[Row]


def of(case: Case, amount: str, seed: int) -> str:
    """The name of what is done with a script, as it is by now."""
    return f"{case.name}-{digest([case.path])}-{amount or 'control'}-{seed}"


def earlier(
    path: Path, cases: list[Case], codes: Sequence[str], *, hog: bool, but: Collection[int]
) -> dict[int, Pass]:
    """By its seed, the fullest pass by one of ``codes`` that is written at ``path``, of equals the one by the
    first of them; none of the seeds ``but``.

    Its machine may be another.
    """
    kept = written(path)
    cpus = sorted({cpu for _, cpu in kept})
    found = {}
    for seed in sorted({*SEEDS} - {*but}):
        beside = "-hog" if hog else ""
        passes = [_pass_of(kept, cpu, cases, code, seed, beside) for code in codes for cpu in cpus]
        fullest = max(passes, key=lambda one: len(one.rows), default=None)
        if fullest is not None and fullest.rows:
            found[seed] = fullest
    return found


def _pass_of(
    kept: Mapping[tuple[str, str], Any],
    cpu: str,
    cases: list[Case],
    code: str,
    seed: int,
    beside: str,
) -> Pass:
    """What is kept of the cases as they are by now."""
    made = Pass(cpu, code, {}, [])
    for case in cases:
        for amount in (*case.amounts, "0") if case.amounts else ("",):
            name = of(case, amount, seed)
            times = kept.get((f"times/{code}-{name}{beside}", cpu))
            if times is not None:
                both = times["made"]
                made.true[case.name, amount, seed] = truth_of(both[amount], both["0"])
            for repeat in count():
                verdict = kept.get((f"verdicts/{code}-{name}-{repeat}{beside}", cpu))
                if verdict is None:
                    break
                made.rows.append(dict(verdict["made"]))
                peers = kept.get((f"peers/{name}{beside}", cpu))
                if peers is not None and repeat == 0:
                    made.rows[-1]["peers"] = peers["made"]
    return made
