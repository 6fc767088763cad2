"""one_cycle: the rate rises, then falls to zero, once over the whole training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

import torch

from outpace.plan.schedule import rate as share
from outpace.train.optimizers import adamw, has_momentum, set_momentum
from outpace.train.strategies.base import Course
from outpace.train.strategies.sgd import Sgd

if TYPE_CHECKING:
    from outpace.train.run import Run

CELLS = 2000
"""so often at most the rate is changed: to do so at every step of many would cost them one percent"""


@final
class OneCycle(Course):
    """AdamW whose rate rises for a quarter of the training and then falls to zero along a cosine.

    What: the rate goes from 1/25 of ``rate`` to ``rate`` and down to zero on the clock of the budget,
    or over the steps where there is no budget; momentum (Adam's first beta) goes the other way, from
    ``momentum[0]`` to ``momentum[1]`` and back, where there is any.
    Helps: the default start. The large rate in the middle learns fast and finds flat minima, the fall
    at the end gives what a constant rate never gives.
    Harms: where training is cut off before its end, as what the fall gains is then lost; where weights
    that are good already are tuned with a large ``rate``.
    Source: Smith and Topin 2017, arXiv 1708.07120; Smith 2018, arXiv 1803.09820; Loshchilov and Hutter
    2017, arXiv 1711.05101 (AdamW); Li et al. 2020, arXiv 1905.04753 (on the clock of a budget).
    """

    name = "one_cycle"
    needs = ("an end",)

    def __init__(
        self,
        rate: float | None = None,
        *,
        weight_decay: float = 0.01,
        momentum: tuple[float, float] | None = (0.95, 0.85),
    ) -> None:
        super().__init__(rate)
        self.weight_decay, self.momentum = weight_decay, momentum
        self.cell: int | None = None

    def optimizer(self, model: torch.nn.Module) -> torch.optim.Optimizer:
        """AdamW."""
        return adamw(model, self.weight_decay)

    def begin(self, run: Run) -> None:
        """The first step's rate."""
        super().begin(run)
        asked = run.given or any(
            isinstance(each, Sgd) and each.momentum != Sgd().momentum
            for each in run.events.strategies
        )
        if self.momentum and asked and any(map(has_momentum, run.optimizer.param_groups)):
            high, low = self.momentum
            run.note(
                f"one_cycle: the momentum of the optimizer goes from {high:g} to {low:g} and back; "
                "OneCycle(momentum=None) leaves it as it is"
            )
        self.cell = None
        self.step_end(run)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The optimizer has the momentum of another step now."""
        super().load_state_dict(state)
        self.cell = None

    def step_end(self, run: Run) -> None:
        """The next step's rate."""
        cell = int(run.clock.used * CELLS)
        if cell == self.cell:
            return
        self.cell = cell
        factor = share("one-cycle", cell / CELLS)
        run.rates.set(factor)
        if self.momentum is not None:
            high, low = self.momentum
            set_momentum(run.optimizer, high - (high - low) * factor)
