"""The best rate of short trainings, and what it says of a long one.

Copies of a training learn from the same few batches, each at another rate with its whole course (a rise,
then a fall to zero), and are judged on batches that none has learnt from. Rates are `STRIDE` apart; on it
goes in the direction in which the loss falls. A parabola through the lowest loss and its neighbours tells
the rate that is best in so few steps; a longer training bears a smaller one (`horizon`).

Against the best rates of fifteen trainings of some 1,000 steps with Adam (the seven of bench/auto.py, all
of bench/quality by coarse grids, two seeds each), by the root of the mean square of the logarithms: off
by 2.4x with 40 steps, 2.5x with 20, 3.1x with 12. One rate for all was off by 3.6x; the range test (Smith
2015, arXiv 1506.01186: one sweep over all rates, three times, with more steps in all) by 3.8x, and once by
77x, as a model that has died in a sweep, or has unlearnt, does not always blow up. `STEPS` of lr_finder and
the first rates were chosen on these same trainings, the exponent was not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from outpace.measure.generators import generators_kept
from outpace.plan.schedule import rate as share
from outpace.train.optimizers import Rates

STRIDE = math.sqrt(10.0)
FIRST_ADAPTIVE, FIRST = 0.03, 0.1
"""rates tried first: with Adam and its like, and with others"""
EXPONENT = 0.32
UNKNOWN = 1000
"""steps that a training is taken to have where that is not known"""
SPREAD = 3.0
"""times above and below the truth that a suggestion is, in four of five trainings"""

Copies = Callable[[], tuple[torch.nn.Module, torch.optim.Optimizer]]
LossOf = Callable[[torch.nn.Module, Any], torch.Tensor]
Agreed = Callable[[list[float]], list[float]]


class Point(NamedTuple):
    """A short training: its largest rate, and the loss in the end; infinite where it blew up."""

    rate: float
    loss: float


class Climb(NamedTuple):
    """Short trainings by their rates, ascending; the loss before them; steps of each."""

    points: list[Point]
    before: float
    steps: int


class Found(NamedTuple):
    """A rate, and between what the best one is in four of five trainings."""

    rate: float
    low: float
    high: float


def climb(
    copies: Copies,
    loss_of: LossOf,
    batches: tuple[Sequence[Any], Sequence[Any]],
    steps: int,
    go_on: Callable[[int], bool],
    agreed: Agreed = lambda values: values,
) -> Climb:
    """Short trainings while ``go_on(how many there are)``, until the loss rises on both sides.

    ``copies``: of a model and its optimizer, which are left as they are, as are generators. ``batches``:
    to learn from, and to judge by. ``agreed``: the mean of all ranks, where those step together.
    """
    learnt, held = batches
    tried: dict[int, float] = {}

    with generators_kept():
        model, optimizer = copies()
        before = judged(model, loss_of, held, agreed)
        first = FIRST_ADAPTIVE if "betas" in optimizer.defaults else FIRST
        del model, optimizer
        while (at := wanted(tried)) is not None:
            if tried and agreed([float(go_on(len(tried)))])[0] < 1.0:
                break
            model, optimizer = copies()
            trained(model, optimizer, loss_of, learnt, first * STRIDE**at, steps)
            tried[at] = judged(model, loss_of, held, agreed)
            del model, optimizer
    points = [Point(first * STRIDE**at, tried[at]) for at in sorted(tried)]
    return Climb(points, before, steps)


def wanted(tried: dict[int, float]) -> int | None:
    """Which rate is to be tried next, in strides from the first; None where the lowest has two neighbours.

    Smaller ones first: should there be no time for all, a rate that is too small does less harm.
    """
    if not tried:
        return 0
    lowest = min(tried, key=lambda at: (tried[at], at))
    return next((at for at in (lowest - 1, lowest + 1) if at not in tried), None)


def trained(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    loss_of: LossOf,
    batches: Sequence[Any],
    rate: float,
    steps: int,
) -> None:
    """One cycle; groups' rates stay in proportion."""
    model.train()
    rates = Rates(optimizer)
    rates.set_peak(rate)
    for step in range(steps):
        rates.set(share("one-cycle", step / steps))
        loss_of(model, batches[step % len(batches)]).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()


@torch.no_grad()
def judged(
    model: torch.nn.Module, loss_of: LossOf, batches: Sequence[Any], agreed: Agreed
) -> float:
    """The mean loss; infinite where it is not a number."""
    model.eval()
    losses = [loss_of(model, batch).detach().reshape(()) for batch in batches]
    (mean,) = agreed([float(torch.stack(losses).mean())])
    return mean if math.isfinite(mean) else math.inf


def suggestion(made: Climb, total: float) -> Found | None:
    """The largest rate for a training of ``total`` steps; None where no rate lowered the loss."""
    if not min(point.loss for point in made.points) < made.before:
        return None
    rate = best(made.points) / horizon(made.steps, total)
    return Found(rate, rate / SPREAD, rate * SPREAD)


def best(points: Sequence[Point]) -> float:
    """The lowest point of a parabola through the lowest loss and its neighbours, over logarithms of rates.

    Where it has not two of them with a loss, its own rate.
    """
    low = min(range(len(points)), key=lambda i: points[i].loss)
    around = [point.loss for point in points[max(0, low - 1) : low + 2]]
    if low == 0 or len(around) < 3 or math.inf in around:
        return points[low].rate
    left, middle, right = around
    bend = left - 2 * middle + right
    shift = 0.5 * (left - right) / bend if bend > 0 else 0.0
    return points[low].rate * math.exp(shift * math.log(STRIDE))


def horizon(steps: int, total: float) -> float:
    """How many times as large the best rate of a short training is as that of a long one.

    By the exponent that Bjorck et al. 2024 (arXiv 2409.19913) found for language models' steps, 0.32; the
    fifteen trainings above had 3.2x from 40 and from 20 steps to 1,000, where it tells 2.8x and 3.5x.
    """
    return math.exp(EXPONENT * math.log(max(1.0, total / steps)))
