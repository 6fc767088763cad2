"""dropout_off: dropout fades out early in training, or is off from the start."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple, final

from torch import nn

from outpace.errors import UsageError
from outpace.train.strategies.base import Strategy

if TYPE_CHECKING:
    from outpace.train.run import Run

BY_P = (
    nn.Dropout,
    nn.Dropout1d,
    nn.Dropout2d,
    nn.Dropout3d,
    nn.AlphaDropout,
    nn.FeatureAlphaDropout,
)
BY_DROPOUT = (nn.RNNBase, nn.MultiheadAttention)
LEVELS = 10
"""so many times it is lowered: a compiled model is compiled anew each time"""


class Dropped(NamedTuple):
    """A layer's dropout: the attribute that it is, and what it is in the user's model."""

    layer: nn.Module
    attribute: str
    share: float


@final
class DropoutOff(Strategy):
    """Dropout falls in a line from what it is to nothing while ``until`` of the budget is used.

    What: that of dropout layers, recurrent nets and MultiheadAttention, in ten equal steps; with
    ``until=0`` there is none from the first step on. At the end of training the layers are as they
    were. Validation, which has no dropout, is as ever.
    Helps: where a model does not fit its training data by far when the budget is used: few epochs,
    many data, a small model. Dropout slows learning there; early it keeps single batches from pulling
    weights about. Steps without it are somewhat cheaper.
    Harms: where a model overfits, which is what dropout is for. Dropout that a model calls as a
    function, with a rate of its own, stays.
    Source: Liu et al. 2023, arXiv 2303.01500 (Dropout reduces underfitting: early dropout, linear);
    Rennie et al. 2014, "Annealed dropout training of deep networks".
    """

    name = "dropout_off"
    sets = ("dropout",)
    needs = ("an end",)

    def __init__(self, until: float = 0.2) -> None:
        if not 0.0 <= until <= 1.0:
            raise UsageError(f"until={until:g}", "it is a share of the budget")
        self.until = until
        self.found: list[Dropped] = []
        self.level = LEVELS

    def begin(self, run: Run) -> None:
        """Find them, and set what the first step has."""
        self.found = dropped(run.module)
        if not self.found:
            raise UsageError("dropout_off: the model's layers drop nothing", "leave it out")
        self.level = LEVELS
        if not run.resumed:
            highest = max(each.share for each in self.found)
            run.note(
                f"dropout_off: dropout ({len(self.found)} layers, up to {highest:g}) is over when "
                f"{self.until:.0%} of the budget is used"
            )
        self.step_end(run)

    def step_end(self, run: Run) -> None:
        """What the next step has."""
        left = 1.0 - run.clock.used / self.until if self.until else 0.0
        level = max(0, math.ceil(LEVELS * left))
        if level != self.level:
            self.level = level
            self.set(level / LEVELS)

    def over(self, run: Run) -> None:
        """Leave the model as it came."""
        self.set(1.0)

    def set(self, share: float) -> None:
        """Of the model's own dropout."""
        for each in self.found:
            setattr(each.layer, each.attribute, share * each.share)


def dropped(model: nn.Module) -> list[Dropped]:
    """The layers that drop something."""
    kinds = ((BY_P, "p"), (BY_DROPOUT, "dropout"))
    found = [
        Dropped(layer, attribute, getattr(layer, attribute))
        for layer in model.modules()
        for kind, attribute in kinds
        if isinstance(layer, kind)
    ]
    return [each for each in found if each.share > 0.0]
