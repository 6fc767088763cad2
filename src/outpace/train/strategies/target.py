"""target: training ends as soon as the target is reached."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from outpace.train.strategies.base import Strategy

if TYPE_CHECKING:
    from outpace.records.training import Row
    from outpace.train.run import Run


FEWEST = 50
"""steps between two looks"""
OFTEN, LATE = 20.0, 0.04
"""times as long as a look that they are apart, and of what was learnt so far: either costs a twentieth"""
PATIENT = {"plateau", "early_stopping"}
"""which count in validations"""
ROUNDING = 1e-6
"""of a target: a mean of float32 may miss it by so much"""


@final
class Target(Strategy):
    """Training ends at the first validation that reaches the target.

    What: the metric, or the validation loss where there is no metric, is compared with ``target`` after
    each validation; the time that it took is in the result. Where nobody says how often to validate
    (``validate_every``), that is done within long epochs too, for a twentieth of the time; not where
    plateau or early_stopping counts in validations, and it is known how long an epoch is.
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

    def step_end(self, run: Run) -> None:
        """An epoch may be much longer than it takes to the target."""
        counts = any(each.name in PATIENT for each in run.events.strategies)
        if not (counts and run.train.whole):
            validate_now_and_then(run)

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


def validate_now_and_then(run: Run) -> None:
    """Ask for a validation within an epoch where one is due, and nobody said how often."""
    if run.validate_every is not None or run.step < FEWEST:
        return
    last = run.history[-1].step if run.history else 0
    apart = max(FEWEST, OFTEN * run.clock.validation_steps, LATE * run.step)
    if run.step - last >= apart:
        run.asked = run.valid is not None
