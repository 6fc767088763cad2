"""Strategies that "auto" thinks of beyond its default: what speaks for each, and how it is settled.

A row is a strategy's name and a function that tells, from the facts, why it may help. ``free`` ones cost
nothing: they are taken where they lower the loss before the first step. All others are tried in short
trainings, and taken where they are better beyond doubt.

Not here: SGD, since short trainings favour Adam whatever the long ones would; and what shows after many
epochs only, or is chosen by measuring its speed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from outpace.train.facts import Facts

UNEQUAL, RARE = 2.0, 0.1
"""times its fair share that the most frequent class is to have; and of it the rarest at most"""
DEEP, CHANGED = 4, 10.0
"""layers before the last at least; times that the signal is to grow or shrink through them"""
LARGE, LONG = 32, 64
"""pixels and tokens from which on less of them is thought of"""
WAITS = 0.5
"""of a step that it takes to make a batch: above it cheaper steps would wait for their input"""


class Candidate(NamedTuple):
    """``begins``: it makes first weights, and is tried before the rate; ``timed``: its steps take
    another time; ``own_rate``: a rate has to be found anew for it; ``own_optimizer``: it brings one;
    ``by_metric``: the loss cannot tell what it is worth.
    """

    name: str
    why: Callable[[Facts], str | None]
    free: bool = False
    begins: bool = False
    timed: bool = False
    own_rate: bool = False
    own_optimizer: bool = False
    by_metric: bool = False


def unequal_classes(facts: Facts) -> str | None:
    """Some class comes much more often than others."""
    times = max(facts.classes, default=0.0) * len(facts.classes)
    if times < UNEQUAL:
        return None
    return f"one of {len(facts.classes)} classes comes {times:.1f} times as often as its fair share"


def rare_classes(facts: Facts) -> str | None:
    """Some class is rare, samples can be drawn again, and a metric tells whether it helps."""
    if not (facts.samples and facts.metric and facts.classes):
        return None
    rarest = min(facts.classes)
    if rarest * len(facts.classes) > RARE:
        return None
    return f"the rarest of {len(facts.classes)} classes is {rarest:.2%} of what was seen"


def fading_signal(facts: Facts) -> str | None:
    """What goes through the layers vanishes or explodes."""
    through = facts.deviations
    if len(through) < DEEP or 1.0 / CHANGED <= through[-1] / max(1e-30, through[0]) <= CHANGED:
        return None
    return (
        f"the signal's deviation goes from {through[0]:.2g} to {through[-1]:.2g} through "
        f"{len(through)} layers"
    )


def no_fall(facts: Facts) -> str | None:
    """The rate does not fall to zero, so that averaged weights may be better than the last."""
    return None if facts.falls else "the rate does not fall to zero at a known end"


def no_fall_nor_batch_norm(facts: Facts) -> str | None:
    """The same; statistics of BatchNorm would be of other weights than the averaged ones."""
    return None if facts.batch_norm else no_fall(facts)


def large_images(facts: Facts) -> str | None:
    """Smaller images would make more steps of the budget."""
    if facts.side is None or min(facts.side) < LARGE or not facts.timed or facts.input > WAITS:
        return None
    return f"images are {facts.side[0]} x {facts.side[1]}"


def long_sequences(facts: Facts) -> str | None:
    """Shorter sequences would make more steps of the budget."""
    if facts.length is None or facts.length < LONG or not facts.timed or facts.input > WAITS:
        return None
    return f"sequences are {facts.length} tokens long, with a target for each"


CANDIDATES = (
    Candidate("class_prior", unequal_classes, free=True),
    Candidate("lsuv", fading_signal, begins=True, own_rate=True),
    Candidate("schedule_free", no_fall_nor_batch_norm, own_rate=True, own_optimizer=True),
    Candidate("ema", no_fall),
    Candidate("progressive_resizing", large_images, timed=True),
    Candidate("sequence_length", long_sequences, timed=True),
    Candidate("repeat_factor", rare_classes, by_metric=True),
)
