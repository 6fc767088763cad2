"""class_prior: a classifier begins by telling each class as often as it comes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, final

import torch
from torch import nn

from outpace.errors import UsageError
from outpace.train import ranks
from outpace.train.layers import look_at
from outpace.train.strategies.base import Strategy

if TYPE_CHECKING:
    from outpace.train.run import Run

BATCHES = 64


class Counted(NamedTuple):
    """Of ``total`` targets, how many are of each class. ``exclusive``: each is of one class alone."""

    counts: list[float]
    total: float
    exclusive: bool


@final
class ClassPrior(Strategy):
    """The bias of a classifier's last layer begins at what the frequencies of the classes tell.

    What: with f the share of a class among the targets of the first 64 batches, each class counted once
    more than it comes, the bias is ln f where targets are numbers of classes (softmax), and
    ln(f / (1 - f)) where they are 0 or 1 for each output (sigmoid). ``pi``: every sigmoid begins at that
    probability instead, -ln((1 - pi) / pi), as focal loss wants it (0.01 in the paper).
    ``frequencies``: of classes that exclude each other, where batches are not (inputs, targets). It is
    set after all other first weights, in whatever order strategies are given.
    Helps: where classes are imbalanced: the first steps are not spent on learning how often each comes,
    and with thousands of negatives to a positive they do not blow up.
    Harms: classes that come as often as each other gain nothing; a head that was loaded has learnt a
    bias already, which is lost. Where other frequencies hold later, it leans to those of training.
    Source: Lin et al. 2017, arXiv 1708.02002, sections 3.3 and 4.1; Karpathy 2019, "A recipe for
    training neural networks" (init well).
    """

    name = "class_prior"

    def __init__(
        self, *, pi: float | None = None, frequencies: Sequence[float] | None = None
    ) -> None:
        if pi is not None and not 0.0 < pi < 1.0:
            raise UsageError(f"pi={pi}", "it is a probability, 0.01 in the paper of focal loss")
        self.pi, self.frequencies = pi, frequencies

    def first_weights(self, run: Run) -> None:
        """Set the bias."""
        counting = self.pi is None and self.frequencies is None
        batches = run.train.peek(BATCHES if counting else 1)
        name, bias = head(run, batches[0])
        prior, said = self.prior(run, batches, name, bias.numel())
        with torch.no_grad():
            bias.copy_(torch.tensor(prior))
        run.note(f"class_prior: the bias of {name} begins at {said}")

    def prior(
        self, run: Run, batches: Sequence[Any], name: str, size: int
    ) -> tuple[list[float], str]:
        """The bias of each of ``size`` outputs, and what it comes from."""
        if self.pi is not None:
            return [logit(self.pi)] * size, f"a probability of {self.pi:g} for each output"
        if self.frequencies is not None:
            found: Counted | None = Counted(list(self.frequencies), sum(self.frequencies), True)
            if len(self.frequencies) != size or min(self.frequencies) <= 0:
                raise UsageError(
                    f"{len(self.frequencies)} frequencies for the {size} outputs of {name}",
                    "give one above 0 for each output",
                )
        else:
            found = counted(batches, size, ignored(run.objective.loss))
        if found is None:
            raise UsageError(
                f"class_prior: targets are no classes of the {size} outputs of {name}",
                "give frequencies= or pi=, or leave it out",
            )
        counts, total = found.counts, found.total
        if run.world > 1 and self.frequencies is None:
            *counts, total = ranks.summed([*counts, total], run.device)
        shares = [count / total for count in counts]
        said = f"the classes' frequencies ({min(shares):.2g} to {max(shares):.2g})"
        return [math.log(f) if found.exclusive else logit(f) for f in shares], said


def head(run: Run, batch: Any) -> tuple[str, nn.Parameter]:
    """The layer that a model calls last, and its bias."""
    called: list[tuple[str, nn.Module]] = []

    def look(name: str, layer: nn.Module, given: tuple[Any, ...], output: torch.Tensor) -> None:
        called.append((name, layer))

    look_at(run.module, run.objective, batch, look)
    if not called:
        raise UsageError("class_prior: the model calls no linear layer", "leave it out")
    name, layer = called[-1]
    if not isinstance(layer.bias, nn.Parameter):
        raise UsageError(
            f"class_prior: the last layer, {name or 'the model'}, has no bias",
            "give it one, or leave class_prior out",
        )
    return name or "the model", layer.bias


def ignored(loss: Any) -> int:
    """The class that a loss is told to leave out; torch's own default where it is told none."""
    keywords = (
        loss.keywords
        if isinstance(loss, partial)
        else vars(loss)
        if hasattr(loss, "__dict__")
        else {}
    )
    return int(keywords.get("ignore_index", -100))


def counted(batches: Sequence[Any], size: int, ignore: int = -100) -> Counted | None:
    """How often each class comes, once more than that; None where targets are no classes. ``ignore``:
    targets that do not count, as those below 0 do not.
    """
    pairs = all(isinstance(batch, tuple | list) and len(batch) == 2 for batch in batches)
    if not pairs or not all(isinstance(batch[1], torch.Tensor) for batch in batches):
        return None
    found = [batch[1].cpu() for batch in batches]
    if all(binary(targets, size) for targets in found):
        rows = torch.cat([by_output(targets, size) for targets in found])
        return Counted((rows.sum(0) + 1.0).tolist(), len(rows) + 2.0, False)
    flat = torch.cat([targets.flatten() for targets in found])
    if flat.is_floating_point() or flat.dtype == torch.bool or size == 1:
        return None
    counts = torch.bincount(flat[(flat >= 0) & (flat != ignore)], minlength=size) + 1.0
    if len(counts) > size:
        return None
    return Counted(counts.tolist(), float(counts.sum()), True)


def binary(targets: torch.Tensor, size: int) -> bool:
    """Whether they are 0 or 1 for each of ``size`` outputs."""
    fits = size == 1 or (targets.dim() > 1 and targets.shape[1] == size)
    return fits and bool(((targets == 0) | (targets == 1)).all())


def by_output(targets: torch.Tensor, size: int) -> torch.Tensor:
    """[any, size]: channels are the second dimension, where there are several."""
    channels_last = targets.movedim(1, -1) if size > 1 else targets
    return channels_last.float().reshape(-1, size)


def logit(share: float) -> float:
    """Its sigmoid is the share."""
    return math.log(share / (1.0 - share))
