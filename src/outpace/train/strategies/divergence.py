"""divergence: a loss that is not a number, or explodes, costs some steps instead of the training."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, final

from msgspec.structs import replace

from outpace.measure.statistics import median
from outpace.seams.batch import tensors_in
from outpace.train import ranks
from outpace.train.alike import loss_of_none
from outpace.train.checkpoint import copied
from outpace.train.finite import finite
from outpace.train.layers import with_later_buffers
from outpace.train.losses import TOGETHER
from outpace.train.strategies.base import Strategy

if TYPE_CHECKING:
    from outpace.train.run import Run

SURE = 2 * TOGETHER
"""steps after a copy by which losses that were bad because of it have been seen"""
FORGIVEN = 1000
"""good steps that make up for a roll-back"""
LEARNT = 0.1
"""of the loss of a model that tells nothing: what has learnt better loses but little up to there"""
TAUGHT_NOTHING = (
    "divergence: the loss of some steps is no number and the weights are, as where all targets of a batch "
    "are ignored: those losses are left out"
)
Copy = tuple[int, dict[str, Any]]


@final
class Divergence(Strategy):
    """Where the loss diverges, go back to the last good weights and halve the rate.

    What: every 32 steps the losses are read. Where one is not finite, or their median is half as large
    again as at the begin (and far outside of the noise there), weights, optimizer and strategies go
    back to a copy in memory that was followed by good losses, at most about 300 steps old; the rate is
    halved; the data go on. After ``most`` roll-backs, one of which 1,000 good steps make up for, training
    ends. A loss that is not finite is left out where others are, and weights and optimizer too: it has
    taught nothing, as where all targets of a batch are ignored. Weights that were trained before begin with a
    small loss, which a rising rate moves: it may grow to a tenth of what it is where all samples are given
    the mean of their outputs (not where the model itself tells its loss). Weights that are no numbers are not
    the best, whatever the metric; where training ends with such, the copy is kept, and validated.
    Helps: a rate that is somewhat too large, a rare batch that blows weights up; it costs a copy, at
    times two, of weights and optimizer in main memory and in checkpoints, one made every 250 steps.
    Harms: a loss that is meant to grow (adversarial training) is taken for divergence; beside strategies
    that make it larger, as pruning, only numbers that are not finite are. What came between the copy and
    the divergence is lost.
    Source: Chowdhery et al. 2022, arXiv 2204.02311, section 5.1 (PaLM: back some steps, other batches).
    """

    name = "divergence"

    def __init__(self, *, every: int = 250, most: int = 5) -> None:
        self.every, self.most = every, most
        self.times = self.good = 0
        """roll-backs that count, and good steps since the last one, or since one was made up for"""
        self.normal: tuple[float, float] | None = None
        """median and spread of the first losses"""
        self.copies: list[Copy] = []
        """step and state; the last may not be known to be good yet, and is the only one where it is"""
        self.untold: float | None = None
        """the loss of a model that tells nothing of samples, where it was asked for"""
        self.seen: Any = None
        """the last batch"""

    def prepare(self, run: Run) -> None:
        """Nothing was seen of this training yet."""
        self.times = self.good = 0
        self.normal, self.copies, self.untold, self.seen = None, [], None, None

    def begin(self, run: Run) -> None:
        """It may have been given up before."""
        if self.times > self.most:
            run.end("diverged")

    def batch(self, run: Run, batch: Any) -> None:
        """The first copy: by now all strategies have begun, and nothing has moved."""
        self.seen = batch
        if not self.copies:
            self.copies = [(run.step, copied(run.learned(but=(self.name,))))]

    def step_end(self, run: Run) -> None:
        """Look every so often."""
        if run.step % TOGETHER:
            return
        losses = list(run.losses.read())
        if run.world > 1:
            # One rank's not-a-number is everyone's.
            losses = [loss / run.world for loss in ranks.summed(losses, run.device)]
        numbers = [loss for loss in losses if math.isfinite(loss)]
        if 0 < len(numbers) < len(losses) and everywhere(run, sound(run)):
            if (
                not run.scaler.is_enabled()
            ):  # which left those steps out, as their numbers were too large
                run.note(TAUGHT_NOTHING)
            losses = numbers
        raised = any(each.raises_loss for each in run.events.strategies)
        why = self.problem(run, losses, raised=raised)
        if why is not None:
            self.roll_back(run, why)
            return
        self.good += TOGETHER
        if self.good >= FORGIVEN:
            self.times, self.good = max(0, self.times - 1), 0
        age = run.step - self.copies[-1][0]
        if age >= SURE:
            del self.copies[:-1]
        if age >= self.every:
            # Before this one the losses were good until here, so the one before it is good.
            self.copies = [self.copies[-1], (run.step, copied(run.learned(but=(self.name,))))]

    def validated(self, run: Run) -> None:
        """Weights that are no numbers are not the best, whatever a metric makes of what they give."""
        if run.best is None or run.best.row is not run.history[-1]:
            return
        if not everywhere(run, kept_finite(run)):
            run.best = run.earlier
            run.history[-1] = replace(run.history[-1], metric=math.nan, valid_loss=math.nan)

    def end(self, run: Run) -> None:
        """What came since the last look may not be kept, unless a validation has found it good."""
        # No copies: what had ended without this strategy was started again, and made no step.
        if run.best is not None or self.times > self.most or not self.copies:
            return
        good = all(map(math.isfinite, run.losses.read())) or sound(run)
        if not everywhere(run, good and kept_finite(run)):
            step, state = self.copies[-1]
            bring_back(run, state)
            run.note(
                f"divergence: the last losses are no numbers: the weights of step {step:,} are kept"
            )
            if run.valid is not None:
                from outpace.train.loop import validate  # it imports the strategies

                validate(run)

    def over(self, run: Run) -> None:
        """A batch may be large."""
        self.seen = None

    def problem(self, run: Run, losses: Sequence[float], *, raised: bool = False) -> str | None:
        """What is wrong with the last losses. ``raised``: a strategy makes them larger."""
        bad = next((loss for loss in losses if not math.isfinite(loss)), None)
        if bad is not None:
            return f"the loss became {bad}"
        if raised:
            return None
        middle = median(losses)
        if self.normal is None:
            self.normal = middle, median(abs(loss - middle) for loss in losses)
            return None
        first, spread = self.normal
        if grown(middle, first, spread) and first >= 0.0:
            if self.untold is None:
                self.untold = loss_of_none(run, self.copies[0][1]["model"], self.seen)
            first = max(first, LEARNT * self.untold)
        if grown(middle, first, spread):
            return f"the loss grew to {middle:.3g}, from {self.normal[0]:.3g} at the begin"
        return None

    def roll_back(self, run: Run, why: str) -> None:
        """Go back, and on with half of the rate."""
        step, state = self.copies[-1]
        if run.step - step <= SURE:
            step, state = self.copies[0]
        self.copies = [(step, state)]
        self.times, self.good = self.times + 1, 0
        if self.times > self.most:
            run.note(f"divergence: {why}, after {self.most} roll-backs")
            bring_back(run, state)
            run.end("diverged")
            return
        before = run.rates.peak
        bring_back(run, state)
        run.rates.rescale(0.5)
        run.losses.forget()
        run.note(
            f"divergence: {why} (step {run.step:,}): back to the weights of step {step:,}, the rate "
            f"from {before:.2g} to {run.rates.peak:.2g}"
        )

    def state_dict(self) -> dict[str, Any]:
        """What it has seen, and what it would go back to."""
        counts = {"times": self.times, "good": self.good}
        return {**counts, "normal": self.normal, "copies": self.copies, "untold": self.untold}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        self.times, self.good = state["times"], state.get("good", 0)
        self.normal = tuple(state["normal"]) if state["normal"] is not None else None
        self.copies, self.untold = state["copies"], state.get("untold")


def grown(loss: float, first: float, spread: float) -> bool:
    """Whether it is far above what it was at first."""
    return loss > first + max(0.5 * abs(first), 6.0 * spread)


def bring_back(run: Run, state: dict[str, Any]) -> None:
    """What was kept; buffers that have come since stay as they are."""
    run.load_learned({**state, "model": with_later_buffers(state["model"], run.module)})


def everywhere(run: Run, found: bool) -> bool:
    """Whether it is so on all ranks."""
    (off,) = run.mean_of_ranks([float(not found)])
    return not off


def kept_finite(run: Run) -> bool:
    """Whether the learnt weights of the model that is kept are finite."""
    pairs = zip(run.module.parameters(), run.judged_model().parameters(), strict=True)
    return finite(each for trained, each in pairs if trained.requires_grad)


def sound(run: Run) -> bool:
    """Whether all that learns is finite, and what the optimizer keeps of it."""
    weights = (weight for group in run.optimizer.param_groups for weight in group["params"])
    return finite(weights) and finite(tensors_in(run.optimizer.state_dict()))
