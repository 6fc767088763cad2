"""target: training ends as soon as the target is reached."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from outpace.train.strategies.base import Strategy

if TYPE_CHECKING:
    from outpace.records.training import Row
    from outpace.train.run import Run


ROUNDING = 1e-6
"""of a target: a mean of float32 may miss it by so much"""


@final
class Target(Strategy):
    """Training ends at the first validation that reaches the target.

    What: the metric, or the validation loss where there is no metric, is compared with ``target`` after
    each validation; the time that it took is in the result.
    Helps: where a model that is good enough, soon, is worth more than a better one later.
    Harms: a first validation above the target may be luck; where each one is noisy the model is worse
    than the target on other data. one_cycle, which plans for the whole budget, gets there late: use
    restarts.
    Source: time to accuracy, Coleman et al. 2019, arXiv 1806.01427 (DAWNBench).
    """

    name = "target"
    needs = ("validation",)

    def __init__(self, target: float) -> None:
        self.target = target

    def begin(self, run: Run) -> None:
        """It may have been reached before."""
        for row in run.history:
            self.look(run, row)

    def validated(self, run: Run) -> None:
        """End training where it is reached."""
        self.look(run, run.history[-1])

    def look(self, run: Run, row: Row) -> None:
        """At one validation."""
        wanted = -run.objective.sign * self.target
        # Something else may have ended the training in the same step.
        if run.reached_s is None and run.cost(row) <= wanted + ROUNDING * abs(wanted):
            run.reached_s = row.seconds
            run.end("target")
