"""Sweeps over learning rates: short trainings of a copy whose rate grows until the loss blows up.

Each step's loss is compared with what the first weights had on the same batch. So what batches differ by
falls out, and the curve is clear on noisy batches too.

The largest rate to train with is a tenth of the one at which a fifth of the fall is lost again, or at which
the loss is a tenth above its begin where it never fell; a sixth for SGD. Against the best rates of thirteen
trainings with Adam (the seven of bench/auto.py over 1,000 steps, six of bench/quality by coarse grids, in
part of constant rates; sweeps from two seeds): within a factor of three in 19 of 26, of six in 24, ten times
too small in one. Where half of the fall was asked for: in 15, and up to 25 times too large, as a GPT and
a classifier with embeddings do not blow up, but unlearn. One rate for all, 0.015, is that near in 16. The
rates of the lowest loss and of a given share of the fall did worse. The share was chosen on these same
trainings; with SGD it was not tried.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from statistics import median, pstdev
from typing import Any, NamedTuple

import torch

from outpace.measure.generators import generators_kept
from outpace.seams.rate import set_rate

LOWEST, HIGHEST = 1e-5, 10.0
BLOWN, SEEN = 0.1, 0.05
"""of the loss at the begin: so much higher than there it has blown up, so much lower it fell"""
LOST = 0.2
"""of the fall; a model that has only learnt how frequent its targets are may keep half of it"""
WIDTH = 2
"""points to either side that a point of a curve is the median of: one batch that blows up is not all"""
LOOK = 10
"""steps after which it is looked whether the sweep can end"""
BELOW_ADAPTIVE, BELOW = 10.0, 6.0
RESAMPLES = 200

LossOf = Callable[[torch.nn.Module, Any], torch.Tensor]
Agreed = Callable[[list[float]], list[float]]


class Sweeps(NamedTuple):
    """``rates``; for each sweep the changes of the loss at them, as far as it came; the first loss."""

    rates: list[float]
    changes: list[list[float]]
    begin: float


class Found(NamedTuple):
    """A rate, and its interval by drawing anew from the sweeps."""

    rate: float
    low: float
    high: float


def sweeps(
    copies: Callable[[], tuple[torch.nn.Module, torch.optim.Optimizer]],
    loss_of: LossOf,
    batches: Sequence[Any],
    steps: int,
    go_on: Callable[[int], bool],
    agreed: Agreed = lambda losses: losses,
) -> Sweeps:
    """One sweep, and more while ``go_on(how many there are)``; ``steps``: of each.

    ``copies``: of a model and its optimizer, which are left as they are, as are generators.
    ``agreed``: what losses are for all ranks, where those have to step together.
    """
    growth = (HIGHEST / LOWEST) ** (1 / (steps - 1))
    rates = [LOWEST * growth**step for step in range(steps)]
    changes: list[list[float]] = []
    with generators_kept():
        first = copies()[0].train()
        with torch.no_grad():
            before = agreed(_values([loss_of(first, batch) for batch in batches]))
        del first
        while not changes or go_on(len(changes)):
            pairs = list(zip(batches, before, strict=True))
            random.Random(len(changes)).shuffle(pairs)
            changes.append(_sweep(*copies(), loss_of, pairs, rates, agreed))
    return Sweeps(rates, changes, sum(map(abs, before)) / len(before))


def _sweep(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    loss_of: LossOf,
    pairs: Sequence[tuple[Any, float]],
    rates: Sequence[float],
    agreed: Agreed,
) -> list[float]:
    model.train()
    largest = max(float(group["lr"]) for group in optimizer.param_groups)
    shares = [float(group["lr"]) / largest if largest else 1.0 for group in optimizer.param_groups]
    losses: list[torch.Tensor] = []
    changes: list[float] = []
    for step, rate in enumerate(rates):
        for group, share in zip(optimizer.param_groups, shares, strict=True):
            set_rate(group, rate * share)
        batch, before = pairs[step % len(pairs)]
        loss = loss_of(model, batch)
        losses.append(loss.detach() - before)
        if len(losses) == LOOK or rate == rates[-1]:
            changes += agreed(_values(losses))
            losses.clear()
            if min(changes[-LOOK // 2 :]) > abs(before):
                break
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
    return changes


def suggestion(found: Sweeps, *, adaptive: bool) -> Found | None:
    """The largest rate to train with; None where the loss blows up at none of those tried."""
    chance = random.Random(0)
    drawn = [chance.choices(found.changes, k=len(found.changes)) for _ in range(RESAMPLES)]
    below = BELOW_ADAPTIVE if adaptive else BELOW
    rate = blown_up(found, found.changes)
    if rate is None:
        return None
    tries = [blown_up(found, changes) for changes in drawn]
    known = sorted((each or rate) / below for each in tries)
    return Found(rate / below, known[int(0.025 * len(known))], known[int(0.975 * len(known))])


def blown_up(found: Sweeps, changes: Sequence[Sequence[float]]) -> float | None:
    """The rate at which the loss has risen again, in the middle of some sweeps."""
    curve = middle(found, changes)
    noise = 3.0 * pstdev(curve[: len(curve) // 6])
    high = max(BLOWN * found.begin, noise)
    above = next((i for i, change in enumerate(curve) if not change < high), len(curve))
    lowest = min(range(above), key=curve.__getitem__, default=0)
    if -curve[lowest] > max(SEEN * found.begin, noise):
        after = range(lowest, above)
        above = next((i for i in after if curve[i] > (1.0 - LOST) * curve[lowest]), above)
    return found.rates[above] if above < len(curve) else None


def middle(found: Sweeps, changes: Sequence[Sequence[float]]) -> list[float]:
    """Of some sweeps, at each rate and those beside it; infinite where most have ended."""
    each = [
        median(change[i] if i < len(change) else math.inf for change in changes)
        for i in range(len(found.rates))
    ]
    return [median(each[max(0, i - WIDTH) : i + WIDTH + 1]) for i in range(len(each))]


def _values(losses: Sequence[torch.Tensor]) -> list[float]:
    values: list[float] = torch.stack([loss.detach().reshape(()) for loss in losses]).tolist()
    return [math.inf if math.isnan(value) else value for value in values]
