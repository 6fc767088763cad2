"""restarts: cycles of the rate, each longer than the one before, so that a target is reached soon."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, final

import torch

from outpace.errors import UsageError
from outpace.plan.schedule import START
from outpace.train.optimizers import adamw
from outpace.train.strategies.base import Course

if TYPE_CHECKING:
    from outpace.train.run import Run

FIRST = 200
"""steps that the first cycle takes at least"""
VALIDATIONS = 4.0
"""times as long as its validation that it takes at least"""
PACE = 10
"""steps after which it is told how many there is time for: the first ones may take much longer"""
RISE, FALL = 0.05, 0.5
"""shares of a cycle in which the rate rises, and in which it falls: a fall of 0.15 bears no rate that is
far too large, one of 0.95 takes longer to a target"""
CELLS = 500
"""so often at most the rate is changed in a cycle: to do so at every step of many costs one percent"""
EXACT = 1e-9
"""by which a rounded end of a cycle may miss it"""


@final
class Restarts(Course):
    """AdamW whose rate falls to zero in cycles, each ``factor`` times as long as the one before.

    What: in each cycle the rate rises over the first twentieth, and falls to zero in a line over the
    second half; at its end there is a validation. There are as many cycles as fit the training with at
    least ``first`` steps in the first; the last ends with the training, on the clock of its budget, or
    of its steps where there is no budget.
    Helps: where training ends at a target: what a fall of the rate gains is there early, and again each
    time that training has become ``factor`` times as long. So the time to a target hardly depends on
    the budget. With ema it may be reached between two falls, too.
    Harms: where the budget is needed whole, one_cycle may end better, as only a part of it, half with
    the factor 2, is the last cycle. Right after a restart a model is worse than just before.
    Source: Loshchilov and Hutter 2017, arXiv 1608.03983 (SGDR, along a cosine); a line: Defazio et al.
    2023, arXiv 2310.07831.
    """

    name = "restarts"
    needs = ("an end",)

    def __init__(
        self,
        rate: float | None = None,
        *,
        first: int = FIRST,
        factor: float = 2.0,
        weight_decay: float = 0.01,
    ) -> None:
        if first < 1 or factor < 1.0:
            given = f"first={first}, factor={factor:g}"
            raise UsageError(
                given, "first is 1 step or more, factor 1 (all cycles as long) or more"
            )
        super().__init__(rate)
        self.first, self.factor, self.weight_decay = first, factor, weight_decay
        self.cycles = 1
        """how many there are"""
        self.cell = (0, -1)
        """cycle, and cell of it, that the rate is at"""

    def optimizer(self, model: torch.nn.Module) -> torch.optim.Optimizer:
        """AdamW."""
        return adamw(model, self.weight_decay)

    def prepare(self, run: Run) -> None:
        """Cycles were not counted yet."""
        self.cycles = 1

    def begin(self, run: Run) -> None:
        """The first step's rate."""
        super().begin(run)
        if not run.resumed and run.clock.seconds == math.inf:
            self.count(run)
        self.cell = (self.at(run)[0], -1)
        self.step_end(run)

    def step_end(self, run: Run) -> None:
        """The next step's rate; where a cycle has ended, a validation before it."""
        if run.step == PACE and run.clock.seconds < math.inf:
            self.count(run)
        cycle, share = self.at(run)
        cell = (cycle, int(share * CELLS))
        if cell == self.cell:
            return
        if cycle > self.cell[0]:
            run.asked = run.valid is not None
        self.cell = cell
        share = cell[1] / CELLS
        risen = START + (1.0 - START) * share / RISE
        run.rates.set(min(risen, 1.0, (1.0 - share) / FALL))

    def count(self, run: Run) -> None:
        """As many cycles as fit."""
        steps = run.step + run.clock.left(run.step)
        first = max(self.first, VALIDATIONS * run.clock.validation_steps)
        if steps < math.inf:
            self.cycles = fitting(steps / first, self.factor)

    def at(self, run: Run) -> tuple[int, float]:
        """The cycle that training is in, and which share of it is over."""
        return place(run.clock.used, self.cycles, self.factor)

    def rises(self, run: Run) -> bool:
        """Whether another cycle follows."""
        return self.at(run)[0] < self.cycles - 1

    def state_dict(self) -> dict[str, Any]:
        """How many cycles there are."""
        return {"cycles": self.cycles}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on with them; a roll-back to before they were counted keeps them."""
        self.cycles = max(self.cycles, state["cycles"])


def fitting(length: float, factor: float) -> int:
    """How many cycles a training holds that is ``length`` times as long as the first; at least one."""
    if factor > 1.0:
        length = math.log(1.0 + length * (factor - 1.0), factor)
    return max(1, int(length + EXACT))


def place(used: float, cycles: int, factor: float) -> tuple[int, float]:
    """Where this share of a training is used: the number of the cycle, from 0, and the share of it."""
    if factor == 1.0:
        now = used * cycles
        cycle = min(cycles - 1, int(now + EXACT))
        return cycle, min(1.0, max(0.0, now - cycle))
    # In units in which cycle k begins at factor ** k.
    now = 1.0 + used * (factor**cycles - 1.0)
    cycle = min(cycles - 1, int(math.log(now, factor) + EXACT))
    begun = factor**cycle
    return cycle, min(1.0, max(0.0, (now / begun - 1.0) / (factor - 1.0)))
