"""Short trainings at several rates, which tell what rate a long one bears (`outpace.train.rate`).

Copies of a training learn from the same few batches, each at another rate with its whole course (a rise,
then a fall to zero), and are judged on batches that none has learnt from. Rates are `STRIDE` apart; on it
goes in the direction in which the loss falls. A rate that is too large may fail once and not the next
time: so a rate above one that failed is taken to fail too, and below it others are tried.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from outpace.plan.schedule import rate as share
from outpace.seams.generators import generators_kept
from outpace.seams.modes import evaluating
from outpace.train.data import fresh
from outpace.train.layers import set_learning
from outpace.train.optimizers import Rates
from outpace.train.pretrained import pretrained
from outpace.train.rate import (
    APART,
    FINE,
    LONG,
    VARIED,
    Climb,
    Point,
    error,
    hardly,
    horizon,
    sound,
    usual_rate,
)
from outpace.train.scaled import UNSCALED, fit_scale, move

STRIDE = math.sqrt(10.0)
FIRST_ADAPTIVE, FIRST = 0.03, 0.1
"""rates tried first where there is no usual one: with Adam and its like, and with others"""
NOISE, NEAR = 2.0, 0.6
"""standard errors that what was clearly learnt is above; share of it that a rate below learns at least where
both are not too small: without the one above the rate is up to 1.3x smaller then"""

Copies = Callable[[], tuple[torch.nn.Module, torch.optim.Optimizer]]
LossOf = Callable[[torch.nn.Module, Any], torch.Tensor]
Agreed = Callable[[list[float]], list[float]]


def climb(
    copies: Copies,
    loss_of: LossOf,
    batches: tuple[Sequence[Any], Sequence[Any]],
    steps: int,
    go_on: Callable[[int], bool],
    agreed: Agreed = lambda values: values,
    *,
    trained_before: bool = False,
    aims: bool = False,
    scaler: torch.amp.GradScaler = UNSCALED,
) -> Climb:
    """Short trainings while ``go_on(how many there are)``, until the loss rises on both sides.

    ``copies``: of a model and its optimizer, which are left as they are, as are generators. ``batches``:
    to learn from, and to judge by. ``agreed``: the mean of all ranks, where those step together.
    ``trained_before``: the weights were; else their norms may tell so. ``aims``: a training to a target may
    end soon, so that the usual rate is not compared with a larger one where it has clearly learnt.
    ``scaler``: of the loss, copied for each.
    """
    learnt, held = batches
    tried: dict[int, Point] = {}

    with generators_kept():
        model, optimizer = copies()
        losses = judged(model, loss_of, held)
        # A batch without a number before any step, all of its targets ignored, has none after it either.
        told = [i for i, loss in enumerate(losses) if math.isfinite(loss)] or range(len(losses))
        before = point(0.0, losses, told, agreed)
        tuned = agreed([float(trained_before or pretrained(model))])[0] > 0.0
        usual = usual_rate(model, optimizer, agreed)
        if usual is not None:
            usual = usual / FINE if tuned else usual
            first = usual * horizon(steps, LONG)
        else:
            first = FIRST_ADAPTIVE if "betas" in optimizer.defaults else FIRST
            first = first / FINE if tuned else first
        soon = aims and usual is not None and not tuned
        if scaler.is_enabled():
            scaler = copy.deepcopy(scaler)
            set_learning(model)
            fit_scale(scaler, optimizer, lambda: _backward(model, loss_of, learnt[0], scaler))
        del model, optimizer
        while (
            at := wanted({i: point.loss for i, point in tried.items()}, before.loss)
        ) is not None:
            if tried:
                on = go_on(len(tried)) and not (soon and clear(tried, before))
                if agreed([float(on)])[0] < 1.0:
                    break
            model, optimizer = copies()
            rate = first * STRIDE**at
            trained(model, optimizer, loss_of, learnt, rate, steps, copy.deepcopy(scaler))
            tried[at] = point(rate, judged(model, loss_of, held), told, agreed)
            del model, optimizer
    points = [tried[at] for at in sorted(tried)]
    return Climb(points, before.loss, steps, usual, VARIED if tuned else APART)


def clear(tried: Mapping[int, Point], before: Point) -> bool:
    """Whether all that is known are the first rate and the one below it, of which the first has learnt more,
    and that beyond what the batches differ by; but not far more: both may be too small.
    """
    if tried.keys() != {-1, 0} or not math.isfinite(before.loss):
        return False
    learnt, lower = (before.loss - tried[at].loss for at in (0, -1))
    return learnt > lower > NEAR * learnt and learnt > NOISE * error(tried[0].parts, before.parts)


def wanted(tried: dict[int, float], before: float) -> int | None:
    """Which rate is to be tried next, in strides from the first; None where the best has two neighbours.

    Smaller ones first: should there be no time for all, a rate that is too small does less harm. Where
    the smaller neighbour has hardly learnt, the next one tells whether that is because it is too small.
    """
    if not tried:
        return 0
    ascending = sorted(tried)
    safe = ascending[: sound([tried[at] for at in ascending], before)]
    best = min(safe, key=lambda at: (tried[at], at))
    if best - 1 not in tried:
        return best - 1
    if best - 2 not in tried and not tried[best - 1] < hardly(tried.values(), before):
        return best - 2
    return None if best + 1 in tried else best + 1


def trained(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    loss_of: LossOf,
    batches: Sequence[Any],
    rate: float,
    steps: int,
    scaler: torch.amp.GradScaler = UNSCALED,
) -> None:
    """One cycle; groups' rates stay in proportion. The weights are those that would be kept."""
    set_learning(model)
    rates = Rates(optimizer)
    rates.set_peak(rate)
    for step in range(steps):
        rates.set(share("one-cycle", step / steps))
        _backward(model, loss_of, batches[step % len(batches)], scaler)
        move(scaler, optimizer)
    # Of schedule_free's, whose package imports this.
    put_mean = getattr(optimizer, "put_mean", None)
    if put_mean is not None:
        put_mean()  # what is validated and kept


def _backward(
    model: torch.nn.Module, loss_of: LossOf, batch: Any, scaler: torch.amp.GradScaler
) -> None:
    scaler.scale(loss_of(model, fresh(batch))).backward()  # type: ignore[no-untyped-call]


@torch.no_grad()
def judged(model: torch.nn.Module, loss_of: LossOf, batches: Sequence[Any]) -> list[float]:
    """The loss of each batch."""
    with evaluating(model):
        losses = [loss_of(model, fresh(batch)).detach().reshape(()) for batch in batches]
    found: list[float] = torch.stack(losses).tolist()
    return found


def point(rate: float, losses: Sequence[float], told: Sequence[int], agreed: Agreed) -> Point:
    """The mean of the losses that are ``told``, infinite where it is not a number, and each of them."""
    parts = tuple(losses[i] for i in told)
    (mean,) = agreed([sum(parts) / len(parts)])
    return Point(rate, mean if math.isfinite(mean) else math.inf, parts)
