"""early_stopping: training ends where nothing more is to be gained."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

from outpace.train.stall import learnt, stalled
from outpace.train.strategies.base import FALLING, Strategy, unfolding
from outpace.train.strategies.target import validate_now_and_then

if TYPE_CHECKING:
    from outpace.train.run import Run

FALLS = "its rate falls with the budget, and what the end of that fall gains would be lost"


@final
class EarlyStopping(Strategy):
    """Training ends where validations get worse beyond doubt, or half of them brought nothing.

    What: the slope of the validations since the rate was last lowered is looked at with its interval
    (`outpace.train.stall`); the best weights are kept. While another strategy still unfolds, as tasks
    join or layers are set free, nothing is looked at.
    Helps: where a model overfits long before its budget is used; with plateau, whose drops come first.
    Harms: a model whose validations get better again much later (double descent, grokking) is ended
    before that. It takes at least eight validations, and more where they are noisy.
    Source: Prechelt 1998, "Early stopping - but when?"; the slope: Sen 1968.
    """

    name = "early_stopping"
    needs = ("validation",)
    clashes = dict.fromkeys(FALLING, FALLS)

    def __init__(self) -> None:
        self.first, self.scale = 0, 1.0
        """validations before the rate was last lowered, and its scale since"""
        self.ended = False

    def prepare(self, run: Run) -> None:
        """The rate is as it began."""
        self.first, self.scale, self.ended = 0, 1.0, False

    def begin(self, run: Run) -> None:
        """It may have ended before. A rate that was lowered since is for the next validation to notice."""
        if self.ended:
            run.end("early stopping")

    def step_end(self, run: Run) -> None:
        """An epoch may have no end."""
        if not run.train.whole:
            validate_now_and_then(run)

    def validated(self, run: Run) -> None:
        """End training where it has stalled."""
        if unfolding(run):
            self.first = len(run.history)
            return
        if run.rates.scale != self.scale:
            # Not this validation either: the rate was lowered because of it.
            self.first, self.scale = len(run.history), run.rates.scale
        costs = [run.cost(row) for row in run.history]
        why = stalled(costs[self.first :], learnt(costs))
        if why is not None:
            run.note(f"early_stopping: {why}")
            run.end("early stopping")
            self.ended = True

    def state_dict(self) -> dict[str, Any]:
        """Since when it looks, and whether it has ended the training."""
        return {"first": self.first, "scale": self.scale, "ended": self.ended}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        self.first, self.scale = state["first"], state["scale"]
        self.ended = state.get("ended", False)
