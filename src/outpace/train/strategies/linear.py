"""linear: the rate falls in a straight line to zero, on the clock."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import torch

from outpace.train.optimizers import adamw
from outpace.train.strategies.base import Course

if TYPE_CHECKING:
    from outpace.train.run import Run


@final
class Linear(Course):
    """AdamW whose rate falls in a line from ``rate`` to zero while the budget is used.

    What: the rate is ``rate`` times the share of time, or of steps, that is left; over the first
    ``warmup`` of it it rises.
    Helps: where the budget is many epochs; better than the same steps at any constant rate.
    Harms: in very few epochs, where a rate that falls from the first step on learns less than
    one_cycle; where training is cut off before its end.
    Source: Li et al. 2020, arXiv 1905.04753 (Budgeted training); Defazio et al. 2023, arXiv 2310.07831.
    """

    name = "linear"
    needs = ("an end",)

    def __init__(
        self, rate: float | None = None, *, warmup: float = 0.02, weight_decay: float = 0.01
    ) -> None:
        super().__init__(rate)
        self.warmup, self.weight_decay = warmup, weight_decay

    def optimizer(self, model: torch.nn.Module) -> torch.optim.Optimizer:
        """AdamW."""
        return adamw(model, self.weight_decay)

    def begin(self, run: Run) -> None:
        """The first step's rate."""
        super().begin(run)
        self.step_end(run)

    def step_end(self, run: Run) -> None:
        """The next step's rate."""
        used = run.clock.used
        rising = (used + 1e-3) / self.warmup if self.warmup else 1.0
        run.rates.set(max(0.0, min(1.0 - used, rising)))
