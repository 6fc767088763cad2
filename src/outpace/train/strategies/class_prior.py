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
from outpace.train.objective import PAIRS
from outpace.train.strategies.base import Strategy

if TYPE_CHECKING:
    from outpace.train.run import Run

BATCHES, SHARE = 64, 0.05
"""whose targets are counted, unless that takes more than this share of the budget"""


class Counted(NamedTuple):
    """Of ``total`` targets, how many are of each class. ``exclusive``: each is of one class alone."""

    counts: list[float]
    total: float
    exclusive: bool


@final
class ClassPrior(Strategy):
    """The bias of a classifier's last layer begins at what the frequencies of the classes tell.

    What: with f the share of a class among the targets of the first 64 batches, or as many as a twentieth
    of the budget has time for, each class counted once more than it comes, the bias is ln f where targets
    are numbers of classes, or cross-entropy is given probabilities of them (softmax), and ln(f / (1 - f))
    where they are 0 or 1 for each output (sigmoid). ``pi``: every sigmoid begins at that
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
        batch, targets = first_targets(run, BATCHES if counting else 1)
        name, bias = head(run, batch)
        prior, said = self.prior(run, targets, name, bias.numel())
        with torch.no_grad():
            bias.copy_(torch.tensor(prior))
        run.note(f"class_prior: the bias of {name} begins at {said}")

    def prior(
        self, run: Run, targets: Sequence[Any], name: str, size: int
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
            found = counted(targets, size, run.objective.loss)
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
    if not layer.bias.requires_grad:
        raise UsageError(
            f"class_prior: the bias of the last layer, {name or 'the model'}, does not learn",
            "leave class_prior out",
        )
    return name or "the model", layer.bias


def first_targets(run: Run, most: int) -> tuple[Any, list[Any]]:
    """The first batch, and the targets of ``most`` batches on the CPU; None for what has none."""
    began = run.clock.read()
    targets: list[Any] = []

    def go_on(found: list[Any]) -> bool:
        batch = found[-1]
        pair = isinstance(batch, PAIRS) and len(batch) == 2 and isinstance(batch[1], torch.Tensor)
        targets.append(batch[1].cpu() if pair else None)
        del found[1:]  # many whole batches may be more than the device holds
        return run.clock.within(SHARE, began)

    return run.train.peek(most, go_on)[0], targets


def ignored(loss: Any) -> int:
    """The class that a loss is told to leave out; torch's own default where it is told none."""
    keywords = (
        loss.keywords
        if isinstance(loss, partial)
        else vars(loss)
        if hasattr(loss, "__dict__")
        else {}
    )
    found = keywords.get("ignore_index")
    return -100 if found is None else int(found)


def heeded(losses: torch.Tensor, targets: Any, ignore: int) -> torch.Tensor:
    """Whether each loss is of a target that counts, and not of the class that is left out."""
    alike = isinstance(targets, torch.Tensor) and targets.shape == losses.shape
    if not alike or targets.is_floating_point():
        return torch.ones_like(losses, dtype=torch.bool)
    found: torch.Tensor = targets.long() != ignore  # among bytes -100 would be class 156
    return found


def excluding(loss: Any) -> bool:
    """Whether a loss is known to be of classes that exclude each other, and takes probabilities of them."""
    loss = getattr(loss, "func", loss)  # of a partial
    named = getattr(loss, "__name__", None) == "cross_entropy"
    return named or isinstance(loss, nn.CrossEntropyLoss)


def counted(targets: Sequence[Any], size: int, loss: Any) -> Counted | None:
    """How often each class comes, once more than that; None where targets are no classes of ``size`` outputs.
    Those that the loss leaves out do not count, nor do those below 0.
    """
    if any(each is None for each in targets):
        return None
    if excluding(loss) and all(of_classes(each, size) for each in targets):
        counts = torch.stack([by_output(each, size).sum(0) for each in targets]).sum(0) + 1.0
        return Counted(counts.tolist(), float(counts.sum()), True)
    if not excluding(loss) and all(binary(each, size) for each in targets):
        rows = torch.cat([by_output(each, size) for each in targets])
        return Counted((rows.sum(0) + 1.0).tolist(), len(rows) + 2.0, False)
    if size == 1 or any(each.is_floating_point() or each.dtype == torch.bool for each in targets):
        return None
    counts = torch.ones(size, dtype=torch.float64)
    for each in targets:  # all together are a picture's worth of numbers for each sample
        flat = each.flatten().long()  # among bytes -100 would be class 156
        found = torch.bincount(flat[(flat >= 0) & (flat != ignored(loss))], minlength=size)
        if len(found) > size:
            return None
        counts += found
    return Counted(counts.tolist(), float(counts.sum()), True)


def of_classes(targets: torch.Tensor, size: int) -> bool:
    """Whether they are a probability of each of ``size`` classes."""
    return targets.is_floating_point() and targets.dim() > 1 and targets.shape[1] == size


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
