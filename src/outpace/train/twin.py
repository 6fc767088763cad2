"""A copy of model and optimizer that makes some steps, to see what they take and what they tell.

Samples of larger batches are those of a smaller one, repeated: they take as much memory and time, unless
what a step takes depends on which samples are in its batch.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, final

import torch

from outpace.measure.gradient_noise import GradientNoise
from outpace.seams.batch import batch_size, scale_batch
from outpace.train import ranks
from outpace.train.finite import finite
from outpace.train.layers import copies_of, set_learning
from outpace.train.optimizers import Rates
from outpace.train.scaled import move, own_gradients

if TYPE_CHECKING:
    from outpace.train.run import Run

PROBE, FIRST = 48, 4
"""steps of learning before the noise of gradients is looked at; samples of the smallest part that is"""
FEWEST_TIMED, TIMED, MOST_TIMED = 2, 5, 30
LITTLE_S, ENOUGH_S = 0.05, 1.0
"""so long all that are timed take at least, unless they are very many; after so long two are enough"""
MORE = 0.1
"""of the samples to a target that larger steps may need more, where they are what ends a training"""


@final
class Twin:
    """Of a training, which it leaves as it is; only the generators go on, and are to be kept outside.

    ``module`` is what is called alone, ``model`` the same with the exchange between ranks. The rate is
    the one that a strategy is given, else the optimizer's. Raises RuntimeError or TypeError where the
    model cannot be copied.
    """

    def __init__(self, run: Run) -> None:
        self.run = run
        self.module, self.optimizer = copies_of(run.module, run.optimizer)
        set_learning(self.module)
        together = run.world > 1
        self.model: torch.nn.Module = self.module
        if together:
            self.model = ranks.wrapped(self.module, run.device, unused=run.unused)
        self.scaler = copy.deepcopy(run.scaler)
        courses = (s for s in run.events.strategies if "the largest rate" in s.sets)
        rate = next((getattr(course, "rate", None) for course in courses), None)
        if rate is not None:
            Rates(self.optimizer).set_peak(rate)

    def gradients(self, batch: Any, *, alone: bool = False) -> None:
        """Add the gradients of a batch to those that are there."""
        loss = self.run.objective(self.module if alone else self.model, batch)
        self.scaler.scale(loss).backward()  # type: ignore[no-untyped-call]

    def step(self, batch: Any, *, alone: bool = False) -> None:
        """One step; ``alone``: without the other ranks."""
        self.gradients(batch, alone=alone)
        move(self.scaler, self.optimizer)

    def seconds(self, act: Callable[[], None], enough_s: float = ENOUGH_S) -> float:
        """The shortest of some times that it takes, on the training's clock, which ranks read alike."""
        act()
        taken: list[float] = []
        while not _enough(taken, enough_s):
            began = self.now()
            act()
            taken.append(self.now() - began)
        return min(taken)

    def now(self) -> float:
        """Once the device has done what it was given."""
        if self.run.device.type == "cuda":
            torch.cuda.synchronize(self.run.device)
        return self.run.clock.now()

    def noise_scale(self, batches: Sequence[Any], step_s: float, left_s: float) -> float | None:
        """Samples of a batch whose gradient is as much noise as signal, after some steps of learning.

        Half of the batches are learnt from, the others tell: at the very first weights gradients agree
        more than they ever will again. Where steps of ``step_s`` would take more than a third of
        ``left_s`` for either, there are fewer steps, or smaller parts of batches to tell. All ranks get
        the same; None where it cannot be told.
        """
        learnt, seen = batches[::2], batches[1::2]
        affordable = left_s / 3 / step_s if step_s else math.inf
        for step in range(int(min(PROBE, affordable))):
            self.step(learnt[step % len(learnt)])
        size = batch_size(batches[0])
        size = min(size, max(FIRST, int(size * min(1.0, affordable / max(1, len(seen))))))
        seen = [sized(batch, size) for batch in seen]
        noise = GradientNoise()
        for batch in seen:
            self.gradients(batch, alone=True)
            self.scaler.unscale_(self.optimizer)
            own = own_gradients(self.optimizer)
            if not self.scaler.is_enabled() or finite(own):
                noise.add(own)
            self.scaler.update()
            self.optimizer.zero_grad()
        found = noise.scale(size)
        if self.run.world > 1:  # the middle of those that found one
            logs = [math.log(found) if found else 0.0, float(bool(found))]
            log, count = ranks.summed(logs, self.run.device)
            found = math.exp(log / count) if count else None
        return found


def _enough(taken: Sequence[float], enough_s: float) -> bool:
    count, total = len(taken), sum(taken)
    return (
        count >= MOST_TIMED
        or (count >= TIMED and total >= LITTLE_S)
        or (count >= FEWEST_TIMED and total >= min(ENOUGH_S, enough_s))
    )


def sized(batch: Any, size: int) -> Any:
    """A part of a batch, or its samples repeated."""
    own = batch_size(batch)
    return batch if size == own else scale_batch(batch, size / own)


def alike(batches: Sequence[Any]) -> list[Any]:
    """Those of as many samples as the first."""
    return [batch for batch in batches if batch_size(batch) == batch_size(batches[0])]


def time_to_quality(step_s: float, samples: int, noise: float) -> float:
    """Seconds to a target, for each of the fewest steps that could reach it.

    With so many samples a step it takes 1 + noise / samples times the fewest (McCandlish et al. 2018,
    arXiv 1812.06162, eq. 2.11).
    """
    return step_s * (1.0 + noise / samples)


def ends_by_samples(run: Run, times: float, step_s: float) -> bool:
    """Whether a training ends when it has gone through its epochs, where steps have so many ``times`` the
    samples: not at a number of steps before, nor in time, nor as a rule at a target.
    """
    length, names = run.train.length, {each.name for each in run.events.strategies}
    if run.epochs is None or length is None or "target" in names:
        return False
    steps = run.epochs * length / times
    return steps <= (run.clock.steps or math.inf) and steps * step_s <= run.clock.seconds


def told(seconds: float) -> str:
    """``1.3 s``, ``25 ms``."""
    return f"{seconds:.3g} s" if seconds >= 0.9995 else f"{1e3 * seconds:.3g} ms"
