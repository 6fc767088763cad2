"""What rate a long training bears: as short ones tell, and as is usual for weights of this size.

One short training tells little: which of two neighbours is better changes with the seed, as curves are
flat around their lowest point. So what counts is not the lowest one but the middle of all that are as
good, as far as seeds or the batches to judge by can tell. A longer training bears a smaller rate
(`horizon`). What comes of it is drawn towards a rate that needs no training at all: a step of Adam moves
each weight by about the rate, and most trainings bear it best to be a tenth of the weights' size
(`usual_rate`). Where both are so far apart that the short trainings are the likelier, these alone count.
Weights that were trained before bear less, and how much less differs (`FINE`, `VARIED`).

Over twenty trainings to a target with Adam (the eight of bench/quality and twelve others, 200 to 5,000
steps, best rates by coarse grids), one deviation of the logarithms: usual rates are off by 1.7x, one rate
for all by 2.1x, what short trainings tell (of fifteen) by 2.9x. A tenth was chosen with these trainings at
hand: the best share is 0.09 in the bench and 0.16 in the others. Against a parabola
through the lowest short training and its neighbours the time to the target was 1.5x shorter on ten others
(counted in steps, three seeds each; longer in 3 of 30 runs, by 1 to 8 %), and 1.2x on the bench (two
seeds), where the flights, whose embeddings are most of the model, took 1.2x as long. The range test (Smith
2015, arXiv 1506.01186) was further off with more steps.

Over fourteen fine-tunings of small nets (300 and 1,000 steps, best rates by grids of the loss in the end): a
thirtieth of the usual rate is off by 4.1x, what short trainings tell by 4.8x, and both together, as they are
weighed here, by 3.5x. The usual rate itself would be 13 times too large in the middle of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import torch

from outpace.measure.statistics import stdev
from outpace.train.optimizers import TABLES, matrices

EXPONENT = 0.32
LONG = 1000
"""steps that usual rates are for, and that a training is taken to have where that is not known"""
PART = 0.1
"""of a weight's size that a step at the usual rate moves it"""
TIED = 0.05
"""of what the best one learnt: a training that learnt so much less is as good"""
APART, OFF = 2.0, 2.9
"""times that best rates are off the usual one, and off what short trainings tell: one deviation each"""
ODD, FAR = 0.1, 30.0
"""chance that the usual rate tells nothing, and how far off it then is"""
FINE, VARIED = 30.0, 3.0
"""times smaller a rate suits weights that were trained before, and times that it is off that"""
HARDLY = 0.1
"""of what the best one learnt: a training that learnt less failed, or was too slow"""
BELOW = math.sqrt(10.0)
"""times smaller a rate is taken where all that were tried are too large"""
SURE = 1.28
"""deviations that hold four of five"""


class Point(NamedTuple):
    """A short training: its largest rate, and the loss in the end; infinite where it blew up. ``parts``:
    of each batch that it is judged by.
    """

    rate: float
    loss: float
    parts: tuple[float, ...] = ()


class Climb(NamedTuple):
    """Short trainings by their rates, ascending; the loss before them; steps of each. ``usual``: the rate
    that suits weights of this size in `LONG` steps, where that is known; ``apart``: times that the best one
    is off that.
    """

    points: list[Point]
    before: float
    steps: int
    usual: float | None = None
    apart: float = APART


class Found(NamedTuple):
    """A rate, and between what the best one is in four of five trainings."""

    rate: float
    low: float
    high: float


def suggestion(made: Climb, total: float) -> Found | None:
    """The largest rate for a training of ``total`` steps; None where no rate lowered the loss."""
    losses = [point.loss for point in made.points]
    if not min(losses) < made.before:
        return None
    safe = made.points[: sound(losses, made.before)]
    middle, variance = as_good(safe, made.before)
    middle, variance = middle - math.log(horizon(made.steps, total)), variance + math.log(OFF) ** 2
    if made.usual is not None:
        usual = made.usual * (LONG / total) ** EXPONENT
        middle, variance = drawn(middle, variance, math.log(usual), made.apart)
    rate = math.exp(middle)
    if len(safe) < len(made.points):
        rate = min(rate, safe[-1].rate)  # the next one failed in a few steps already
    spread = math.exp(SURE * math.sqrt(variance))
    return Found(rate, rate / spread, rate * spread)


def careful(made: Climb, total: float) -> float | None:
    """A rate for a training of ``total`` steps where all that were tried are too large; None where they are
    not, or make no difference.
    """
    losses = [point.loss for point in made.points]
    if min(losses) < made.before or not max(losses) > made.before:
        return None
    return made.points[0].rate / BELOW / horizon(made.steps, total)


def hardly(losses: Iterable[float], before: float) -> float:
    """The loss of a training that has hardly learnt; what has a number at all did, where none was before."""
    return before - HARDLY * (before - min(losses)) if math.isfinite(before) else math.inf


def sound(losses: Sequence[float], before: float) -> int:
    """How many of them, by ascending rates, come before the first that failed: that has hardly learnt,
    where a smaller rate has learnt more.
    """
    limit = hardly(losses, before)
    failed = (
        i for i, loss in enumerate(losses) if i and not loss < limit and min(losses[:i]) < loss
    )
    return next(failed, len(losses))


def drawn(told: float, variance: float, usual: float, apart: float = APART) -> tuple[float, float]:
    """Mean and variance of a rate's logarithm, of which short trainings tell one and its size another.

    By Bayes: a normal prior around the usual rate, which is ``apart`` times off, and, with a chance of `ODD`,
    one so wide that it says next to nothing. Where the latter is the likelier by what was told, it alone
    counts: a mean of both would be a rate that neither tells.
    """
    found = []
    for chance, off in ((1.0 - ODD, apart), (ODD, FAR)):
        prior = math.log(off) ** 2
        both, share = prior + variance, prior / (prior + variance)
        likely = chance * math.exp(-0.5 * (told - usual) ** 2 / both) / math.sqrt(both)
        found.append((likely, share * told + (1.0 - share) * usual, share * variance))
    if found[1][0] > found[0][0]:
        return found[1][1:]
    whole = sum(likely for likely, _, _ in found)
    middle = sum(likely * at for likely, at, _ in found) / whole
    spread = sum(likely * (own + (at - middle) ** 2) for likely, at, own in found) / whole
    return middle, spread


def usual_rate(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    agreed: Callable[[list[float]], list[float]] = lambda values: values,
) -> float | None:
    """`PART` of the size of a model's weights, for optimizers that move each weight by about the rate; None
    for others.

    Their size: the root of the mean square of each matrix or kernel, the geometric mean of these; without
    embeddings, which are as large as one likes. Source: steps relative to the size of weights, Shazeer and
    Stern 2018, arXiv 1804.04235, section 8 (a hundredth, for long trainings). ``agreed``: the mean of all
    ranks, which may have a part of each weight.
    """
    if not {"betas", "eps"} <= optimizer.defaults.keys():
        return None  # Lion, which has no eps, wants a tenth of Adam's
    left_out = {id(each.weight) for each in model.modules() if isinstance(each, TABLES)}
    whole, sizes = matrices(model) - left_out, []
    for weight in model.parameters():
        if id(weight) in whole and weight.requires_grad:
            own = getattr(weight, "to_local", lambda weight=weight: weight)().detach()
            size = float(own.abs().float().square().mean().sqrt()) if own.numel() else 0.0
            if 0.0 < size < math.inf:
                sizes.append(math.log(size))
    total, count = agreed([math.fsum(sizes), float(len(sizes))])
    return PART * math.exp(total / count) if count else None


def as_good(points: Sequence[Point], before: float) -> tuple[float, float]:
    """Mean and variance of the logarithms of the rates that are as good as the best one.

    Each counts by how likely it is to be as good: its loss is above the lowest by many times what seeds
    differ by, or what the same batches tell of both, or by little.
    """
    safe = [point for point in points if math.isfinite(point.loss)]
    best = min(safe, key=lambda point: point.loss)
    learnt = (before if math.isfinite(before) else max(p.loss for p in safe)) - best.loss
    weights = []
    for point in safe:
        tied = max(TIED * learnt, error(point.parts, best.parts), 1e-30)
        weights.append(math.exp(-(point.loss - best.loss) / tied))
    logs = [math.log(point.rate) for point in safe]
    middle = sum(w * log for w, log in zip(weights, logs, strict=True)) / sum(weights)
    squares = (w * (log - middle) ** 2 for w, log in zip(weights, logs, strict=True))
    return middle, sum(squares) / sum(weights)


def error(one: Sequence[float], other: Sequence[float]) -> float:
    """The standard error of the difference of two means over the same batches; 0 where that is not known."""
    apart = [a - b for a, b in zip(one, other, strict=True)] if len(one) == len(other) else []
    if len(apart) < 2 or not all(map(math.isfinite, apart)):
        return 0.0
    return stdev(apart) / math.sqrt(len(apart))


def horizon(steps: int, total: float) -> float:
    """How many times as large the best rate of a short training is as that of a long one.

    By the exponent that Bjorck et al. 2024 (arXiv 2409.19913) found for language models' steps, 0.32;
    fifteen trainings here had 3.2x from 40 and from 20 steps to 1,000, where it tells 2.8x and 3.5x.
    """
    return math.exp(EXPONENT * math.log(max(1.0, total / steps)))
