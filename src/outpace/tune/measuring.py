"""Which of a script's trainings is measured, where it has several: an encoder's and its classifier's, say.

Each process measures one, to where another follows it. What would be told of both together is true
of neither.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Any

from outpace.errors import Interrupted
from outpace.plan.budget import duration
from outpace.tune.children import Launch, Measured, measure_training
from outpace.tune.files import CONTESTS, STATUS, read, write

MOST_TRAININGS = 4
LEAST_S = 5.0
"""of the longest, where they come back: what takes turns more often than that is one training"""


def measure(launch: Launch, spec: dict[str, Any], folder: Path) -> Measured:
    """Run the target until the evidence of a training is complete or the time is spent.

    It is the one that begins where ``spec`` says, in a function or after so many steps, or else the longest.
    """
    begin = spec.get("begin")
    if begin is not None and begin.isdigit():
        spec = {**spec, "from_step": int(begin)}
    elif begin is not None:
        code, told = _find(launch, spec, folder)
        if "before" not in told:
            seen = code != Interrupted.exit_code
            none = [_told_of_none(begin, told.get("within", ()))] if seen else []
            return Measured(None, code, none)
        spec = {**spec, "from_step": told["before"]}
    if begin is None:
        measured = _measure_longest(launch, spec, folder)
    else:
        measured = measure_training(launch, spec, folder, stays=True)
    measured.notes += told_of_others(measured)
    return measured


def _find(launch: Launch, spec: dict[str, Any], folder: Path) -> tuple[int, dict[str, Any]]:
    """Where a function's training begins: exit code, and what was seen."""
    (folder / STATUS).unlink(missing_ok=True)
    there = {**spec, "function": spec["begin"]}
    return launch("outpace.tune.from_step:find", there, folder, {}), read(folder / STATUS, {})


def _told_of_none(function: str, within: Sequence[str]) -> str:
    said = f"no optimizer of torch made a step within {function}"
    return f"{said}; they made some within {', '.join(within)}" if within else said


def _measure_longest(launch: Launch, spec: dict[str, Any], folder: Path) -> Measured:
    """Of several trainings that follow each other before all is measured, the longest."""
    here, seen, begun = spec, list[Measured](), monotonic()
    while True:
        longest = max(map(_trained_s, seen), default=0.0)
        try:
            found = measure_training(launch, here, folder, longest)
        except KeyboardInterrupt:
            if not seen:
                raise
            return replace(max(seen, key=_trained_s), exit_code=Interrupted.exit_code)
        if found.another is None or not _is_cut_short(found):
            break
        seen.append(found)
        known = [each.another["before"] for each in seen if each.another is not None]
        if found.another["where"] in known or len(seen) == MOST_TRAININGS:
            break
        here = {**here, "from_step": found.another["after"]}
        if spec.get("from_start"):
            here["time_s"] = max(1.0, spec["time_s"] - (monotonic() - begun))
    if seen and _is_over(found):
        found = max([*seen, found], key=_trained_s)
        if _is_cut_short(found):
            found = _the_rest(launch, spec, folder, found)
    return found


def _is_cut_short(found: Measured) -> bool:
    """Whether another training follows one that is not measured to its end."""
    complete = found.contests.get("complete")
    return found.another is not None and found.exit_code == 0 and not complete


def _is_over(found: Measured) -> bool:
    """Whether its length was seen, if it was there at all."""
    over = found.evidence is None or found.evidence.run.finished or found.another is not None
    return over and found.exit_code == 0


def _the_rest(launch: Launch, spec: dict[str, Any], folder: Path, found: Measured) -> Measured:
    """Measure on in a training that another one follows, or in all of those that take turns."""
    assert found.evidence is not None
    if _trained_s(found) < LEAST_S:
        return measure_training(launch, {**spec, "mixes": True}, folder, stays=True)
    if found.contests:
        write(folder / CONTESTS, found.contests)
    there = {**spec, "from_step": found.evidence.run.from_step}
    return measure_training(launch, there, folder, earlier=found, stays=True)


def _trained_s(measured: Measured) -> float:
    return measured.evidence.run.trained_s if measured.evidence is not None else 0.0


def told_of_others(measured: Measured) -> list[str]:
    """That the script trains more than once, and which of it was measured."""
    found, another = [], measured.another
    if measured.evidence is not None and (step := measured.evidence.run.from_step):
        took = duration(measured.evidence.run.before_s)
        found.append(f"nothing is told of the {took} before step {step:,}, of another training")
    if another is not None:
        found.append(
            f"another training follows, at {another['where']}, of which nothing is told: "
            f"--from {another['after']} measures it"
        )
    return found
