"""What a training's first epoch takes that those after it do not: samples that are kept once they were made.

A data set may keep them itself, and the system keeps the files that it has read. Either is told by
drawing some samples twice. The steps of the first epoch then do not stand for the others: those after it
are watched instead, where it ends in time, else they are predicted from these samples.

Not told of: batches that workers make, whose copies of the data set end with the epoch or have a part of
the samples each, and less than two thirds of the time that a batch takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from outpace.measure.ledger import clean_steps, mean_of, mean_phases
from outpace.records.run import Recurring
from outpace.seams.host import Step

KEPT = 3.0
"""times as soon that a batch is made again, for its samples to be kept: what is in the processor's caches is
not as much sooner"""
MATTERS = 0.1
"""of a step's time, that is saved at the least"""


def kept(made_s: float, again_s: float, step_s: float) -> bool:
    """Whether batches whose samples were drawn before are made so much sooner that it matters."""
    return made_s > KEPT * again_s and made_s - again_s > MATTERS * step_s


def sooner(steps: Sequence[Step], seconds: float) -> list[Step]:
    """Steps as they are where each batch is made so many seconds sooner."""
    return [_sooner(step, round(seconds * 1e9) * max(1, step.micro_steps)) for step in steps]


def _sooner(step: Step, ns: int) -> Step:
    saved = min(ns, step.phases.get("input", 0))
    phases = {**step.phases, "input": step.phases.get("input", 0) - saved}
    return replace(step, wall=step.wall - saved, cpu=max(0, step.cpu - saved), phases=phases)


def parted(steps: Sequence[Step], second: int | None) -> tuple[list[Step], list[Step]]:
    """Steps before the second epoch and those from there on, where a whole run shows samples kept."""
    first = [step for step in steps if second is not None and step.index < second]
    later = list(steps[len(first) :])
    one, other = (mean_phases(clean_steps(some)).get("input", 0.0) for some in (first, later))
    if not first or not later or not kept(one, other, _mean(first)):
        return [], list(steps)
    return first, later


def first_epoch(first: Sequence[Step], later: Sequence[Step], epoch: float) -> Recurring | None:
    """What the first epoch, of so many steps, took longer than those after it; None where it did not."""
    if not first or not later:
        return None
    longer = _mean(first) - _mean(later)
    if longer <= MATTERS * _mean(later):
        return None
    return Recurring("input", longer * epoch, 1, 0, None, leads=True, over=epoch)


def _mean(steps: Sequence[Step]) -> float:
    return mean_of(clean_steps(list(steps)))[0]
