"""plateau: the rate drops where learning stalls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

import torch

from outpace.train.optimizers import adamw
from outpace.train.stall import learnt, stalled
from outpace.train.strategies.base import Course, unfolding

if TYPE_CHECKING:
    from outpace.train.run import Run


@final
class Plateau(Course):
    """AdamW whose rate is divided where the validations show that learning has stalled.

    What: after each validation the slope of those since the last drop is looked at with its interval
    (`outpace.train.stall`); where they can have brought next to nothing, the rate is multiplied by
    ``drop``, at most ``drops`` times.
    Helps: where it is not known how long training will take; with early_stopping.
    Harms: in short trainings, as it takes eight validations to tell a plateau from noise: there
    one_cycle is ahead by far. Progress that comes in sudden steps after long plateaus is taken for none.
    Source: the drops: He et al. 2015, arXiv 1512.03385; a test in the place of patience: King 2018,
    "Automatic learning rate scheduling that really works" (dlib).
    """

    name = "plateau"
    needs = ("validation",)

    def __init__(
        self,
        rate: float | None = None,
        *,
        drop: float = 0.2,
        drops: int = 3,
        weight_decay: float = 0.01,
    ) -> None:
        super().__init__(rate)
        self.drop, self.drops, self.weight_decay = drop, drops, weight_decay
        self.first = self.dropped = 0
        """validations before the last drop; drops so far"""

    def optimizer(self, model: torch.nn.Module) -> torch.optim.Optimizer:
        """AdamW."""
        return adamw(model, self.weight_decay)

    def prepare(self, run: Run) -> None:
        """The rate was not dropped yet."""
        self.first = self.dropped = 0

    def validated(self, run: Run) -> None:
        """Drop the rate where it is time to."""
        costs = [run.cost(row) for row in run.history]
        if unfolding(run):
            self.first = len(costs)
            return
        if self.dropped == self.drops:
            return
        why = stalled(costs[self.first :], learnt(costs), part=3, unseen=0.1)
        if why is not None:
            before = run.rates.peak
            run.rates.rescale(self.drop)
            self.first, self.dropped = len(costs), self.dropped + 1
            run.note(f"plateau: {why}: the rate goes from {before:.2g} to {run.rates.peak:.2g}")

    def state_dict(self) -> dict[str, Any]:
        """Where the last drop was."""
        return {"first": self.first, "dropped": self.dropped}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there; a roll-back does not raise the rate, nor make validations undone."""
        self.first = max(self.first, state["first"])
        self.dropped = max(self.dropped, state["dropped"])
