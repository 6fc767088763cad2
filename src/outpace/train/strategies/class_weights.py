"""class_weights: targets of rare classes count for more in the loss."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, final

import torch

from outpace.errors import UsageError
from outpace.train import ranks
from outpace.train.layers import traceless
from outpace.train.strategies.base import Strategy
from outpace.train.strategies.class_prior import (
    BATCHES,
    Counted,
    binary,
    counted,
    excluding,
    first_targets,
    ignored,
)
from outpace.train.unreduced import Each, unreduced

if TYPE_CHECKING:
    from outpace.train.run import Run


@final
class ClassWeights(Strategy):
    """The loss of each target is weighted by how rare its class is: (1 - beta) / (1 - beta^n).

    What: n is how many targets of the class there are in an epoch, told from the first 64 batches, or as
    many as a twentieth of the budget has time for, each class counted once more than it comes; its
    effective number grows with n until about 1 / (1 - ``beta``). Weights are 1 on average over the data.
    Where targets are 0 or 1 for each output (sigmoid), ones and zeros of each output are two classes; where
    cross-entropy is given probabilities of classes, a target counts by the mean weight of its classes.
    ``counts``: n of classes that exclude each other, instead. Validation has the plain loss.
    Helps: the recall of rare classes, without seeing any sample twice: an epoch is as long as ever.
    Harms: what the model tells of how frequent classes are is off by the weights, and so are plain
    accuracy and validation loss. A rare sample that is labelled wrongly counts for more too; batches
    with one have larger gradients. Beside class_prior, which begins where a plain loss ends.
    Source: Cui et al. 2019, arXiv 1901.05555, section 4; 0.999 is one of the values tried there.
    """

    name = "class_weights"
    sets = ("the loss",)
    clashes = {"repeat_factor": "both make up for rare classes"}  # noqa: RUF012

    def __init__(self, beta: float = 0.999, *, counts: Sequence[float] | None = None) -> None:
        if not 0.0 <= beta < 1.0:
            raise UsageError(f"beta={beta}", "it is 0 for no weights, and below 1")
        if counts is not None and min(counts) < 1:
            raise UsageError(f"counts={list(counts)}", "give how often each class comes: 1 or more")
        self.beta, self.counts = beta, counts
        self.weights = torch.empty(0)
        """of each class; or those of zeros and those of ones for each output, [2, outputs]"""

    def prepare(self, run: Run) -> None:
        """Count, unless that is in a checkpoint, and have the loss weighted."""
        each = unreduced(run.objective.loss, self.name)
        self.ignored = ignored(run.objective.loss)
        run.objective.learning = partial(self.learning, each)
        if self.name in run.kept:  # they were told from the first batches, which may be others now
            self.weights = torch.empty(0, device=run.device)
            return
        found = self.epoch_counts(run)
        n = torch.tensor(found.counts, dtype=torch.float64)
        if not found.exclusive:
            n = torch.stack([found.total - n, n])
        weights = (1.0 - self.beta) / (1.0 - self.beta**n)
        weights *= n.sum(0) / (n * weights).sum(0)
        self.weights = weights.to(run.device, torch.get_default_dtype())

    def epoch_counts(self, run: Run) -> Counted:
        """Targets of each class in an epoch."""
        given, loss = self.counts, run.objective.loss
        batch, targets = first_targets(run, BATCHES if given is None else 1)
        with traceless(run.module), run.objective.kept():
            outputs, _ = run.objective.given(run.module, batch)
        size = outputs.shape[1] if outputs.dim() > 1 else 1
        if given is not None:
            if not excluding(loss) and all(t is not None and binary(t, size) for t in targets):
                raise UsageError(
                    "class_weights: counts= are of classes that exclude each other, and targets are 0 or 1 "
                    "for each output",
                    "leave counts= out: ones and zeros of each output are counted",
                )
            if len(given) != size:
                raise UsageError(
                    f"class_weights: counts= are of {len(given)} classes, and the model tells {size}",
                    "give how often each class comes",
                )
            return Counted(list(given), sum(given), True)
        found = counted(targets, size, loss)
        if found is None:
            raise UsageError(
                f"class_weights: targets are no classes of the {size} outputs", "leave it out"
            )
        counts, total = found.counts, found.total
        if run.world > 1:
            *counts, total = ranks.summed([*counts, total], run.device)
        epoch = (run.train.whole or len(targets)) / len(targets)
        return Counted([epoch * count for count in counts], epoch * total, found.exclusive)

    def begin(self, run: Run) -> None:
        """Say so."""
        low, high = float(self.weights.min()), float(self.weights.max())
        run.note(f"class_weights: targets count {low:.2g} to {high:.2g} times")

    def learning(self, each: Each, outputs: Any, targets: torch.Tensor) -> torch.Tensor:
        """The weighted mean."""
        losses = each(outputs, targets)
        if self.weights.dim() == 1:
            if losses.dim() < targets.dim():  # probabilities of classes
                weights = targets.to(self.weights).movedim(1, -1) @ self.weights
                return (weights * losses).mean()
            targets = targets.long()  # of bytes, -100 would be a class, and an index a mask
            known = (targets >= 0) & (targets != self.ignored)
            weights = self.weights[targets.where(known, 0)] * known
            return (weights * losses).sum() / known.sum()
        zeros, ones = self.weights.reshape(2, -1, *[1] * (targets.dim() - 2))
        return (torch.where(targets > 0.5, ones, zeros) * losses).mean()

    def state_dict(self) -> dict[str, Any]:
        """The weights: other batches may come first when training goes on."""
        return {"weights": self.weights}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on with them."""
        self.weights = state["weights"].to(self.weights.device)
