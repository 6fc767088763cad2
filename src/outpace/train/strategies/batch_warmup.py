"""batch_warmup: batches are small at first, and double until they have the size that was given."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, final

import torch

from outpace.errors import UsageError
from outpace.measure.gradient_noise import GradientNoise
from outpace.serve.loader import Loader
from outpace.train.scaled import own_gradients
from outpace.train.strategies.base import Strategy
from outpace.train.strategies.batch_size import copies

if TYPE_CHECKING:
    from outpace.train.run import Run

EVERY, LOOKED_AT = 64, 8
"""of so many steps the gradients of the last few tell their noise"""


@final
class BatchWarmup(Strategy):
    """Batches begin with an eighth of their samples, and double until they have all of them.

    What: they double ``doublings`` times: by="clock" at equal shares of the budget, for the last time
    at ``until``; by="noise" where gradients of eight steps in a row are as much noise as signal at two
    steps' samples or more, which is looked at every 64 steps. The next batch has the new size, in the
    middle of an epoch too; with BatchNorm they begin with two samples at least. The rate stays what it is:
    its noise falls as batches grow.
    Helps: where gradients agree early and not late: at first few samples tell as much as many and make
    more steps, at the end many take the noise away, as a lower rate would.
    Harms: where a step takes as long with few samples as with many. The rate has to suit the smallest
    batches: lr_finder tries rates with those. With each size workers begin anew. What changes much in eight
    steps is taken for noise.
    Source: Smith et al. 2018, arXiv 1711.00489 (larger batches in the place of a lower rate); the noise:
    McCandlish et al. 2018, arXiv 1812.06162, eq. 2.9 and appendix A.1.
    """

    name = "batch_warmup"
    sets = ("the size of batches",)

    def __init__(
        self, by: Literal["clock", "noise"] = "clock", *, doublings: int = 3, until: float = 0.5
    ) -> None:
        if by not in ("clock", "noise") or doublings < 1 or not 0.0 < until <= 1.0:
            given = f"by={by!r}, doublings={doublings}, until={until:g}"
            raise UsageError(given, "by is 'clock' or 'noise', doublings 1 or more, until a share")
        self.by, self.doublings, self.until = by, doublings, until
        self.needs = ("an end",) if by == "clock" else ()
        self.whole = "a rank sees a part of the gradients; by='clock' goes" if by == "noise" else ""
        self.loader: Loader | None = None
        self.device = torch.device("cpu")
        self.last = self.done = 0
        """samples of the largest batches, 0 where that is not known yet; doublings so far"""
        self.before = 0
        """samples of the Loader's batches as it came"""
        self.fewest = 1
        """samples of the smallest batches"""
        self.noise = GradientNoise()

    @property
    def samples(self) -> int:
        """Of a batch now."""
        least = max(1, min(self.fewest, self.last))
        return max(least, self.last >> (self.doublings - self.done))

    def prepare(self, run: Run) -> None:
        """See that the size can be set."""
        from outpace.train.facts import has_batch_norm  # which imports the strategies

        if not isinstance(run.train.source, Loader):
            raise UsageError(
                "batch_warmup sets how many samples make a batch, and train= gives ready batches",
                "give train= a data set or a tuple of tensors",
            )
        self.loader, self.device, self.last = run.train.source, run.device, 0
        self.before = self.loader.batch_size
        self.fewest = 2 if has_batch_norm(run.module) else 1  # of one sample there is no variance

    def first_batches(self, run: Run) -> None:
        """The smallest."""
        assert self.loader is not None
        self.last, self.done, self.noise = self.loader.batch_size, 0, GradientNoise()
        run.train.resize(self.samples)
        run.clock.validation_steps *= self.last / self.samples
        run.note(f"batch_warmup: batches of {self.samples:,} samples at first, not {self.last:,}")

    def gradients(self, run: Run) -> None:
        """Look at those that are to tell."""
        among = run.step % EVERY >= EVERY - LOOKED_AT
        if self.by == "noise" and self.done < self.doublings and among:
            self.noise.add(own_gradients(run.optimizer))

    def step_end(self, run: Run) -> None:
        """Double where it is time to."""
        if self.last and self.done < self.doublings and (why := self.due(run)):
            self.done += 1
            run.resize(self.samples)
            run.note(f"batch_warmup: {self.samples:,} samples from step {run.step:,} on: {why}")

    def due(self, run: Run) -> str:
        """Why it is time, if it is."""
        if self.by == "clock":
            share = self.until * (self.done + 1) / self.doublings
            return f"{share:.0%} of the budget is used" if run.clock.used >= share else ""
        if run.step % EVERY:
            return ""
        size = self.samples * copies(run)
        found, self.noise = self.noise.scale(size) or 0.0, GradientNoise()
        said = f"gradients are half noise at {found:,.0f} samples or more"
        return said if found >= 2 * size else ""

    def over(self, run: Run) -> None:
        """Leave a Loader as it came."""
        if self.loader is not None:
            self.loader.resize(self.before)
        self.loader = None  # which holds the data

    def state_dict(self) -> dict[str, Any]:
        """The size, and what is known of the noise."""
        return {"last": self.last, "done": self.done, "noise": dict(vars(self.noise))}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on with it; a roll-back leaves it alone."""
        if self.loader is None or self.last:
            return
        self.last, self.done = state["last"], state["done"]
        sums = [each.to(self.device, copy=True) for each in state["noise"]["sums"]]
        vars(self.noise).update({**state["noise"], "sums": sums})
        self.loader.resize(self.samples)
