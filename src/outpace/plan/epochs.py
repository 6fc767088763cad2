"""What a script's epochs have that was not as its loader says, or was not seen while it was watched.

Validations that were not seen are reckoned by the loaders that nothing was drawn from: one after each
epoch, or one in all where epochs went by without. They may be none, which the interval holds; those
without a loader of their own are left out. All of that is said.
"""

from __future__ import annotations

from collections.abc import Iterator

from outpace.plan.budget import duration
from outpace.records.evidence import Evidence
from outpace.records.plan import Estimate

ALIKE = 0.02
"""of an epoch's steps, by which it may differ from its loader's without a word; and of all seconds"""
DOUBT = 2.0
"""times as long as predicted that a validation may take"""


SAID = {"epoch_end": "epoch's end", "compiling": "compilation"}


def steps_of_epoch(evidence: Evidence) -> float | None:
    """Steps of an epoch as those had that were over, else by the loader's batches; None: unknown."""
    return evidence.run.epoch_steps or loaders_epoch(evidence)


def loaders_epoch(evidence: Evidence) -> int | None:
    """Steps in all batches of the training's loader; None where it does not tell how many it has."""
    batches = evidence.input.batches
    return max(1, batches // max(1, evidence.steps.micro_steps)) if batches else None


def validations(evidence: Evidence, steps: int) -> tuple[int, Estimate] | None:
    """How many are to be expected in so many steps, and their seconds; None where nothing tells."""
    each, epoch = evidence.run.validation_s, steps_of_epoch(evidence)
    if each is None or evidence.run.finished:
        return None
    epochs = max(1, int(steps / epoch)) if epoch else 1
    count = 1 if evidence.run.epoch_steps is not None else epochs
    return count, Estimate(count * each, 0.0, max(DOUBT * count, epochs) * each)


def _came_once(evidence: Evidence, steps: int) -> Iterator[str]:
    """What is reckoned with as often as it may come at most."""
    whole = evidence.whole_s
    for one in evidence.run.recurring:
        more = one.seconds(steps) - one.each_s
        if not one.sure and one.every is not None and more > ALIKE * whole:
            yield (
                f"one {SAID.get(one.name, one.name)} was seen, after {one.first:,} "
                f"step{'s' * (one.first != 1)}: with one every "
                f"{round(one.every):,} steps {duration(more)} of that are for those to come"
            )


def _first_epoch(evidence: Evidence, steps: int) -> Iterator[str]:
    """What the first epoch takes longer than the others."""
    longer = [one.seconds(steps) for one in evidence.run.recurring if one.over is not None]
    whole = evidence.whole_s
    if sum(longer) > ALIKE * whole:
        yield (
            f"{duration(sum(longer))} of that are for samples that are made in the first epoch and "
            "kept for the others, by the data set or by the system"
        )


def notes(evidence: Evidence, steps: int) -> Iterator[str]:
    """What a user should know of a forecast of so many steps."""
    run, given = evidence.run, loaders_epoch(evidence)
    if run.leaves and not run.finished:
        yield f"it may end sooner, by {' or '.join(run.leaves)}, which is no count of steps"
    yield from _came_once(evidence, steps)
    yield from _first_epoch(evidence, steps)
    if run.epoch_steps and given and abs(run.epoch_steps - given) > ALIKE * given:
        had = f"an epoch is taken to have {round(run.epoch_steps):,} steps"
        yield f"{had}, as those had that were over, where its loader has {given:,}"
    if run.finished or any(row.name == "validation" for row in evidence.ledger):
        return
    expected = validations(evidence, steps)
    if expected is not None:
        count, found = expected
        yield (
            f"no validation was seen while it was watched: {duration(found.estimate)} "
            f"({duration(found.low)} to {duration(found.high)}) of that are for {count:,} of them, by the "
            "samples of the loaders that nothing was drawn from"
        )
    elif run.epoch_steps is None:
        yield "no validation was seen while it was watched: those that come are left out"
