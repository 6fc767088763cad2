"""batch_size: how many samples a step learns from, by what its time and its gradients' noise tell."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, final

from outpace.errors import OutpaceError, UsageError
from outpace.seams.generators import generators_kept
from outpace.serve.loader import Loader
from outpace.serve.making import bytes_of
from outpace.train.fits import Fits
from outpace.train.strategies.base import Sizing
from outpace.train.twin import MORE, Twin, alike, ends_by_samples, sized, time_to_quality, told

if TYPE_CHECKING:
    from outpace.train.run import Run

BATCHES = 32
"""that are looked at"""
SHARE = 0.1
"""of the training that finding out may take"""
FEWEST_STEPS, FEWEST_SAMPLES = 60, 8
SMALLEST = 4
"""batch that is tried; a step is more than the time of its fixed costs long before"""


class Size(NamedTuple):
    """Of batches; ``noise``: samples at which a gradient is as much noise as signal, infinite where it
    was not measured; ``why``: in words.
    """

    samples: int
    why: str
    noise: float = math.inf


@final
class BatchSize(Sizing):
    """Batches have the size that reaches a quality first, or the largest that fits in memory.

    What: on a copy, before the first step. Memory is measured at small batches and drawn as lines over
    their size (`outpace.train.fits`); what is to fit is tried in a child process first, as a size that
    does not fit must not end the training. With B samples a step takes t(B) seconds, and a target 1 +
    N / B times the fewest steps, where at N samples a gradient is as much noise as signal. N is taken
    from gradients of single batches and of all of them together, after some steps of learning; t is
    timed at the size given, and at twice or half of it as long as t(B) (1 + N / B) falls. Where epochs
    end the training, and neither its time nor a target, B grows to N / 10 at most: each of the fewest
    steps takes B + N samples, and those are given. The largest rate goes with the size, in proportion
    for SGD, to the root for Adam, less so where B is near N, unless lr_finder finds one for the new
    size. ``size="largest"``: what fits, and nothing of time. The strategy comes before all others that
    set something by trying.
    Helps: where the size was not chosen by measuring: small steps that are mostly overhead, large ones
    whose gradients say nothing new.
    Harms: it takes up to a tenth of the training, and a copy of model and optimizer. N grows while
    learning: early on too small a size is found for long trainings. A step's time is without that of
    loading data. Of ``steps=`` each takes longer where batches are larger. Of ``epochs=`` there are fewer
    steps: with N / 10 samples each they come nearly as far, with ``size="largest"`` they may not.
    Source: McCandlish et al. 2018, arXiv 1812.06162, eq. 2.6 and 2.11, appendix A.1; Goyal et al. 2017,
    arXiv 1706.02677; Malladi et al. 2022, arXiv 2205.10287.
    """

    name = "batch_size"
    sets = ("the size of batches",)
    whole = "it tries batches on a whole copy of the model"

    def __init__(self, size: Literal["best", "largest"] = "best") -> None:
        if size not in ("best", "largest"):
            raise UsageError(f"size={size!r}", "it is 'best' or 'largest'")
        super().__init__()
        self.size = size
        self.loader: Loader | None = None
        self.before = 0
        """samples of its batches as it came"""

    def prepare(self, run: Run) -> None:
        """See that the size can be set."""
        super().prepare(run)
        if not isinstance(run.train.source, Loader):
            raise UsageError(
                "batch_size sets how many samples make a batch, and train= gives ready batches",
                "give train= a data set or a tuple of tensors",
            )
        self.loader = run.train.source
        self.before = self.loader.batch_size

    def over(self, run: Run) -> None:
        """Leave the Loader as it came."""
        if self.loader is not None:
            self.loader.resize(self.before)
        self.loader = None  # which holds the data

    def first_batches(self, run: Run) -> None:
        """Find the size and set it."""
        assert self.loader is not None
        began, before = run.clock.read(), self.loader.batch_size
        most = self.loader.order.size // self.loader.world
        if run.steps_ahead < FEWEST_STEPS or most < FEWEST_SAMPLES:
            steps = f"{run.steps_ahead:g} steps of {most:,} samples"
            run.note(f"batch_size: {before}, as it was: {steps} are too few to try others")
            return
        try:
            with generators_kept(), run.objective.kept():
                found = self.found(run, before, most, began)
        except OutpaceError:
            raise
        except Exception as error:  # of a model, an optimizer or a loss that does not bear it
            run.note(f"batch_size: {before}, as it was: no steps on a copy ({error})")
            return
        if found.samples != before:
            self.loader.resize(found.samples)
            run.clock.validation_steps *= before / found.samples
        more = self.scale_rate(run, before, found.samples, found.noise / copies(run))
        seconds = run.clock.read() - began
        size = f"{found.samples:,}" + (f", not {before:,}" if found.samples != before else "")
        run.note(f"batch_size: {size}: {found.why}{more} (found in {seconds:.1f} s)")

    def found(self, run: Run, before: int, most: int, began: float) -> Size:
        """Try sizes."""
        half = SHARE / 2  # the other one is for trying
        batches = alike(run.train.peek(BATCHES, lambda found: run.clock.within(half, began)))
        batch = max(batches, key=bytes_of)
        twin = Twin(run)
        fits = Fits(twin, batch, most, SHARE * run.clock.seconds)
        wanted = fits.predicted if self.size == "largest" else min(before, fits.predicted)
        start = fits.largest(wanted)
        if not start and fits.late:
            return Size(before, f"there is no time to try {wanted:,}")
        if not start:
            return Size(before, f"memory seems to be too short for {wanted:,}; nothing was tried")
        if self.size == "largest":
            limit = "there are no more samples" if start == most else "as much as fits in memory"
            return Size(start, limit)
        short = f"memory has no room for {before:,}, " if start < before else ""
        steps = Steps(twin, batch, fits, before)
        step_s = steps.measure(start)
        until = began + SHARE * min(run.clock.seconds, run.steps_ahead * step_s)
        parts = [sized(each, start) for each in batches]
        noise = twin.noise_scale(parts, step_s, max(0.0, until - run.clock.read()))
        if noise is None:
            return Size(start, f"{short}the noise of gradients can't be told from so few batches")
        best = climbed(start, steps, noise / copies(run), lambda: until - run.clock.read())
        gain = steps.cost(start, noise / copies(run)) / steps.cost(best, noise / copies(run))
        faster = (
            f"{gain:.3g} times as fast to the same quality, as predicted: " if gain > 1.0 else ""
        )
        times = ", ".join(f"{told(s)} with {n:,}" for n, s in sorted(steps.times.items()))
        alone = " (no time to try others)" if len(steps.times) == 1 else ""
        why = (
            f"{short}{faster}a step takes {times}{alone}, its gradient is half noise at {noise:,.0f} "
            f"samples; memory should hold {fits.predicted:,}"
        )
        if any(math.isinf(steps.cost(each, noise / copies(run))) for each in steps.times):
            why += f"; {max(steps.times):,} would make too few steps of {run.epochs} epochs"
        return Size(best, why, noise)

    def state_dict(self) -> dict[str, Any]:
        """The size, which batches have until the end."""
        samples = self.loader.batch_size if self.loader is not None else None
        return {**super().state_dict(), "samples": samples}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on with it."""
        super().load_state_dict(state)
        if self.loader is not None and state["samples"] != self.loader.batch_size:
            self.loader.resize(state["samples"])


@final
class Steps:
    """Their times: of each size the shortest that was measured."""

    def __init__(self, twin: Twin, batch: Any, fits: Fits, before: int) -> None:
        self.twin, self.batch, self.fits, self.before = twin, batch, fits, before
        self.times: dict[int, float] = {}

    def measure(self, size: int) -> float:
        """Steps with so many samples, which fit."""
        batch = sized(self.batch, size)
        enough_s = SHARE * SHARE * self.twin.run.clock.seconds
        seconds = self.twin.seconds(lambda: self.twin.step(batch), enough_s)
        self.times[size] = min(seconds, self.times.get(size, math.inf))
        return self.times[size]

    def cost(self, size: int, noise: float) -> float:
        """`time_to_quality`; infinite for one that would get too little out of the epochs that there are."""
        step_s, times = self.times[size], size / self.before
        if size > max(self.before, MORE * noise) and ends_by_samples(self.twin.run, times, step_s):
            return math.inf
        return time_to_quality(step_s, size, noise)


def climbed(start: int, steps: Steps, noise: float, left_s: Callable[[], float]) -> int:
    """The size of which no tried neighbour, twice or half as large, is better."""
    best = start
    for times in (2.0, 0.5):
        while True:
            size = min(int(times * best), steps.fits.predicted)
            # So many steps: one to try it, and three to time it, twice, and once the best.
            needed_s = (7 * times + 3) * steps.times[best]
            if size in steps.times or size < SMALLEST or left_s() < needed_s:
                break
            if not steps.fits(size):
                break
            for each in (size, best, size):  # in turns: a machine that is slow now is so for both
                steps.measure(each)
            if steps.cost(size, noise) >= steps.cost(best, noise):
                break
            best = size
        if best != start:
            break
    return best


def copies(run: Run) -> int:
    """Batches that make a step: of all ranks, and those whose gradients are added up."""
    return run.world * run.train.together
