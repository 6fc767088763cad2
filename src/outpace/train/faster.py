"""Whether a step computed in another way is faster, and still the same step.

Steps of two copies are timed in turns, on the same batches, for as few rounds as it takes to be sure.
Before that the gradients of one batch are compared: what is computed in another way may differ by how it
rounds, and by no more than a tenth, of which batches among themselves differ by far more.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from outpace.measure.statistics import paired_gain
from outpace.records.gain import Gain
from outpace.seams.generators import generators_kept
from outpace.seams.modes import evaluating
from outpace.train.clock import Clock, done
from outpace.train.data import fresh
from outpace.train.layers import set_learning
from outpace.train.loop import gradients
from outpace.train.run import Run
from outpace.train.scaled import fit_scale, move
from outpace.train.strategies.dropout_off import dropped
from outpace.train.trials import Trials, Variant

WARM, FEWEST, MOST = 2, 3, 12
"""steps of each that are not timed; rounds that are"""
WORTH = 1.05
"""times as fast that a step has to be at least, where nothing else is gained"""
SURE = 0.99
"""confidence in that: it is looked at after each round"""
SLOW = 2.0
"""times as long that a step takes where no more of them are looked at"""
APART = 0.1
"""of the gradient's length that gradients may differ by"""
COSTS = 2 * (1 + WARM + FEWEST)
"""steps that it takes, as a rule"""


class Faster(NamedTuple):
    """How many times as fast steps are, None where they were not timed; whether that is worth having
    beyond doubt; and how far their gradient is off, as a share of its length.
    """

    gain: Gain | None
    worth: bool
    apart: float

    @property
    def taken(self) -> bool:
        """Whether it is worth having, and the same."""
        return self.worth and self.apart <= APART

    def told(self) -> str:
        """``steps 1.9 times as fast [1.8, 2.1], gradients 0.8% apart: taken``."""
        apart = f"gradients {self.apart:.1%} apart"
        if self.gain is None:
            return f"{apart}: left out"
        return f"{in_words(self.gain)}, {apart}: {'taken' if self.taken else 'left out'}"


def in_words(gain: Gain) -> str:
    """``steps 1.9 times as fast [1.8, 2.1]``."""
    return f"steps {gain.speedup:.2f} times as fast [{gain.low:.2f}, {gain.high:.2f}]"


def compared(
    trials: Trials, base: Variant, other: Variant, kept: float = 0.0, least: float = WORTH
) -> Faster:
    """Steps of ``other`` against those of ``base``, as long as ``kept`` steps more can be paid for. They are
    worth having where they are ``least`` times as fast.
    """
    began, steps = trials.clock.read(), 0
    with generators_kept(), trials.asked.kept():
        runs = [trials.begun(each, 0, Clock(now=trials.clock.now)) for each in (base, other)]
        with torch.no_grad():  # what only a validation does with its outputs has to work too
            model = runs[1].judged_model()
            with evaluating(model):
                trials.asked.judge(model, [fresh(trials.held_out[0])])
        for run in runs:
            set_learning(run.module)
        apart = distance(*(gradients_of(run, fresh(trials.batches[0])) for run in runs))
        times: tuple[list[float], list[float]] = ([], [])
        gain, worth = None, False
        step_s = trials.step_s
        for number in range(WARM + MOST if apart <= APART else 0):
            more = len(runs) + kept
            if not trials.purse.holds(2 + steps + more, more * step_s):
                break
            batch = trials.batches[number % len(trials.batches)]
            taken = [0.0, 0.0]
            for which in (0, 1) if number % 2 else (1, 0):
                taken[which] = step_seconds(runs[which], fresh(batch))
            steps, step_s = steps + len(runs), max(taken)
            slow = taken[1] > SLOW * taken[0]
            if number < WARM and not slow:
                continue
            for seconds, each in zip(taken, times, strict=True):
                each.append(seconds)
            gain = paired_gain(*times)
            if len(times[0]) >= FEWEST:
                worth = paired_gain(*times, confidence=SURE).low > least
            if slow or worth or (len(times[0]) >= FEWEST and gain.high < least):
                break
    trials.spent(2 + steps, began)
    return Faster(gain, worth, apart)


def gradients_of(run: Run, batch: Any) -> list[torch.Tensor]:
    """Of a batch, with no layer dropping anything, as what is drawn for that may depend on the precision;
    what the model draws besides is the same each time.
    """
    layers = dropped(run.module)
    for each in layers:
        setattr(each.layer, each.attribute, 0.0)

    def backward() -> None:
        with generators_kept():
            gradients(run, batch)

    found = fit_scale(run.scaler, run.optimizer, backward)
    for each in layers:
        setattr(each.layer, each.attribute, each.share)
    return found


def distance(one: Sequence[torch.Tensor], other: Sequence[torch.Tensor]) -> float:
    """Length of their difference over that of the first; infinite where either is no number."""
    if len(one) != len(other):
        return math.inf
    off = math.fsum(squared(a - b) for a, b in zip(one, other, strict=True))
    length = math.fsum(squared(each) for each in one)
    found = math.sqrt(off / length) if length > 0.0 else math.inf
    return found if math.isfinite(found) else math.inf


def squared(gradient: torch.Tensor) -> float:
    """The square of its length."""
    values = gradient.coalesce().values() if gradient.is_sparse else gradient
    return float(values.double().square().sum())


def step_seconds(run: Run, batch: Any) -> float:
    """One step."""
    began = done(run.clock.now)
    gradients(run, batch)
    run.scaler.unscale_(run.optimizer)
    move(run.scaler, run.optimizer)
    return done(run.clock.now) - began
