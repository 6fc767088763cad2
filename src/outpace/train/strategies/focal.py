"""focal: targets that are told well already hardly count in the loss."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, final

import torch

from outpace.errors import UsageError
from outpace.train.strategies.base import Strategy
from outpace.train.strategies.class_prior import heeded, ignored
from outpace.train.unreduced import Each, logarithm, unreduced, unweighted

if TYPE_CHECKING:
    from outpace.train.run import Run


@final
class Focal(Strategy):
    """The loss of each target is multiplied by (1 - p)^gamma, p the probability it is told with.

    What: of a loss that is -ln p, cross-entropy or its binary form; ``gamma`` 0 is the loss itself.
    The mean is over all targets that the loss does not leave out. The paper's alpha is the loss's own
    ``weight=`` or ``pos_weight=``: p is told without them, and without its label smoothing. Validation has
    the plain loss.
    Helps: where easy targets outnumber those that matter by hundreds, as the background in detection;
    with ClassPrior(pi=0.01), which keeps the first steps from going to the many.
    Harms: targets that are labelled wrongly are never told well, and count the most. Probabilities
    come out nearer to 1/2 than they are. Losses are smaller, and so are SGD's steps at the same rate.
    Source: Lin et al. 2017, arXiv 1708.02002, equation 4 and section 3.3.
    """

    name = "focal"
    sets = ("the loss",)

    def __init__(self, gamma: float = 2.0) -> None:
        if gamma != 0.0 and gamma < 1.0:
            raise UsageError(f"gamma={gamma:g}", "it is 0, or 1 and more: 2 in the paper")
        self.gamma = gamma

    def prepare(self, run: Run) -> None:
        """Have the loss focused."""
        loss = run.objective.loss
        if not logarithm(loss):
            raise UsageError(
                f"focal: it is not known whether {loss!r} is -ln p",
                "give loss=F.cross_entropy or F.binary_cross_entropy_with_logits",
            )
        each, plain = unreduced(loss, self.name), unweighted(loss)
        told = each if plain is loss else unreduced(plain, self.name)
        self.ignored = ignored(loss)
        run.objective.learning = partial(self.learning, each, told)

    def learning(self, each: Each, told: Each, outputs: Any, targets: Any) -> torch.Tensor:
        """The focused mean; ``told`` gives -ln p."""
        losses = each(outputs, targets)
        surprise = losses if told is each else told(outputs, targets)
        focused = (-torch.expm1(-surprise)) ** self.gamma * losses
        return focused.sum() / heeded(losses, targets, self.ignored).sum()
