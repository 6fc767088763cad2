"""Strategies that "auto" thinks of beyond its default: what speaks for each, and how it is settled.

A row is a strategy's name and a function that tells, from the facts, why it may help. Some cost nothing,
and are taken where they lower the loss before the first step; some compute the same steps in another way,
and are taken where steps are faster beyond doubt. All others are tried in short trainings, and taken where
they are clearly better; under a target, where there is no time for that, one of which a paper tells how many
fewer steps it needs is taken where these are not too slow.

Not here: what short trainings favour, or not, whatever the long ones would (SGD; batch_warmup, as gradients
agree the most at first); what shows after many epochs only (loss_sampling, subset, early stopping); what
finds its own setting by measuring a training's steps (batch_size, accumulation) or by trials of its own
(task_curriculum); kaiming, which reckons what lsuv measures; focal, which added nothing to class_prior
where that was measured.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal, NamedTuple

from outpace.train.expected import FEWER
from outpace.train.facts import Facts

UNEQUAL, RARE = 2.0, 0.1
"""times its fair share that the most frequent class is to have; and of it the rarest at most"""
DEEP, CHANGED = 4, 10.0
"""layers before the last at least; times that the signal is to grow or shrink through them"""
LARGE, LONG = 32, 64
"""pixels and tokens from which on less of them is thought of"""
WAITS = 0.5
"""of a step that it takes to make a batch: above it cheaper steps would wait for their input"""
FEW = 2.0
"""epochs in which hardly anything is learnt by heart"""
MOSTLY, CHEAP = 0.5, FEWER - 1.0
"""of the weights that are to be matrices, and of a step that Muon may take for them: more than that is longer
than steps are fewer"""


Settled = Literal["the first loss", "the time of a step", "trials"]


class Candidate(NamedTuple):
    """``by``: what settles it. ``begins``: it makes first weights, and is tried before the rate;
    ``timed``: its steps take another time; ``own_rate``: a rate has to be found anew for it;
    ``own_optimizer``: it brings one; ``by_metric``: the loss cannot tell what it is worth; ``fewer``: times
    as few steps to a target, where that is known well enough to be taken without trials.
    """

    name: str
    why: Callable[[Facts], str | None]
    by: Settled = "trials"
    begins: bool = False
    timed: bool = False
    own_rate: bool = False
    own_optimizer: bool = False
    by_metric: bool = False
    fewer: float = 1.0


def unequal_classes(facts: Facts) -> str | None:
    """Some class comes much more often than others."""
    times = max(facts.classes, default=0.0) * len(facts.classes)
    if times < UNEQUAL:
        return None
    return f"one of {len(facts.classes)} classes comes {times:.1f} times as often as its fair share"


def rare_class(facts: Facts) -> str | None:
    """Some class is rare, and a metric that is more than plain accuracy tells whether its recall grows."""
    if not (facts.metric and facts.classes) or facts.accuracy:
        return None
    rarest = min(facts.classes)
    if rarest * len(facts.classes) > RARE:
        return None
    return f"the rarest of {len(facts.classes)} classes is {rarest:.2%} of what was seen"


def rare_samples(facts: Facts) -> str | None:
    """The same, and samples can be drawn again by their class."""
    return rare_class(facts) if facts.samples and facts.alone else None


def rare_targets(facts: Facts) -> str | None:
    """The same, and targets can be weighted by theirs."""
    return rare_class(facts) if facts.told else None


def fading_signal(facts: Facts) -> str | None:
    """What goes through the layers vanishes or explodes."""
    through = facts.deviations
    times = through[-1] / max(1e-30, through[0]) if len(through) >= DEEP else 1.0
    if math.isnan(times) or 1.0 / CHANGED <= times <= CHANGED:
        return None
    return (
        f"the signal's deviation goes from {through[0]:.2g} to {through[-1]:.2g} through "
        f"{len(through)} layers"
    )


def no_fall(facts: Facts) -> str | None:
    """The rate does not fall to zero, so that averaged weights may be better than the last."""
    return None if facts.falls else "the rate does not fall to zero at a known end"


def no_fall_nor_batch_norm(facts: Facts) -> str | None:
    """The same; statistics of BatchNorm would be of other weights than the averaged ones, and weights in half
    precision do not tell its moves.
    """
    return None if facts.batch_norm or facts.short else no_fall(facts)


def too_few_epochs(facts: Facts) -> str | None:
    """Dropout keeps a model from learning its samples by heart, which takes more epochs than there are."""
    if not facts.dropout or facts.epochs > FEW:
        return None
    return f"dropout of up to {facts.dropout:g}, and each sample comes {facts.epochs:.1f} times"


def mostly_matrices(facts: Facts) -> str | None:
    """Most weights are matrices of hidden layers, and batches are large beside them."""
    if facts.hidden < MOSTLY or facts.muon > CHEAP:
        return None
    return (
        f"{facts.hidden:.0%} of the weights are matrices of hidden layers, and it takes about "
        f"{facts.muon:.0%} of a step for them"
    )


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


def full_precision(facts: Facts) -> str | None:
    """Half of it may do."""
    return (
        "weights are in float32, and the device computes in bfloat16 too" if facts.halves else None
    )


def scaled_precision(facts: Facts) -> str | None:
    """Half of it may do, with a scaled loss."""
    return (
        "weights are in float32, and the device computes in float16 too" if facts.scaled else None
    )


def channels_first(facts: Facts) -> str | None:
    """Convolutions may want images the other way."""
    return "convolutions look at images channel by channel" if facts.turned else None


CANDIDATES = (
    Candidate("class_prior", unequal_classes, by="the first loss"),
    Candidate("bf16", full_precision, by="the time of a step"),
    Candidate("fp16", scaled_precision, by="the time of a step"),
    Candidate("channels_last", channels_first, by="the time of a step"),
    Candidate("lsuv", fading_signal, begins=True, own_rate=True),
    Candidate("schedule_free", no_fall_nor_batch_norm, own_rate=True, own_optimizer=True),
    Candidate("muon", mostly_matrices, timed=True, own_optimizer=True, fewer=FEWER),
    Candidate("ema", no_fall),
    Candidate("dropout_off", too_few_epochs),
    Candidate("progressive_resizing", large_images, timed=True),
    Candidate("sequence_length", long_sequences, timed=True),
    Candidate("repeat_factor", rare_samples, by_metric=True),
    Candidate("class_weights", rare_targets, by_metric=True),
)
