"""What a model and its first batches look like, before the first step: what "auto" goes by."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from outpace.serve.loader import Loader
from outpace.train.data import Batches
from outpace.train.layers import look_at
from outpace.train.objective import PAIRS, Objective
from outpace.train.strategies.progressive_resizing import side_of
from outpace.train.strategies.sequence_length import length_of

MOST_CLASSES = 10_000
NORMS = torch.nn.modules.batchnorm._BatchNorm


class Facts(NamedTuple):
    """``classes``: the share of each class among the targets seen; ``side``: of images; ``length``: of
    sequences with a target for each token; ``deviations``: between samples, of what each layer gives,
    in their order, the last one left out; ``samples``: batches are drawn by a Loader; ``input``: how
    many times as long as a step it takes to make a batch; ``timed``: the end is a time; ``falls``: the
    rate is zero there.
    """

    classes: tuple[float, ...] = ()
    side: tuple[int, int] | None = None
    length: int | None = None
    deviations: tuple[float, ...] = ()
    batch_norm: bool = False
    samples: bool = False
    input: float = 0.0
    metric: bool = False
    timed: bool = False
    falls: bool = True


def facts_of(
    module: torch.nn.Module, objective: Objective, train: Batches, batches: Sequence[Any]
) -> Facts:
    """What can be seen of them; what the training is to be is left as it is."""
    return Facts(
        classes=classes_of(batches),
        side=side_of(batches[0]),
        length=tokens_told(batches[0]),
        deviations=deviations_of(module, objective, batches[0]),
        batch_norm=has_batch_norm(module),
        samples=isinstance(train.source, Loader),
        metric=objective.metric is not None,
    )


def has_batch_norm(module: torch.nn.Module) -> bool:
    """Whether it keeps statistics of batches."""
    return any(isinstance(each, NORMS) for each in module.modules())


def classes_of(batches: Sequence[Any]) -> tuple[float, ...]:
    """The share of each class that is seen; none where targets are no numbers of classes."""
    targets = [batch[1] for batch in batches if isinstance(batch, PAIRS) and len(batch) == 2]
    if not targets or not all(isinstance(each, torch.Tensor) for each in targets):
        return ()
    flat = torch.cat([each.flatten().cpu() for each in targets])
    if flat.is_floating_point() or flat.is_complex() or flat.dtype == torch.bool:
        return ()
    counts = torch.unique(flat[flat >= 0], return_counts=True)[1].tolist()  # below 0: to be ignored
    if len(counts) > MOST_CLASSES:
        return ()
    return tuple(count / sum(counts) for count in counts)


def tokens_told(batch: Any) -> int | None:
    """How long sequences are, where there is something to be told at each of their tokens."""
    length = length_of(batch)
    if length is None or not isinstance(batch, PAIRS) or len(batch) != 2:
        return None
    targets = batch[1]
    told = isinstance(targets, torch.Tensor) and targets.dim() > 1 and targets.shape[1] == length
    return length if told else None


def deviations_of(module: torch.nn.Module, objective: Objective, batch: Any) -> tuple[float, ...]:
    """Of what each linear and convolutional layer gives, the last one left out."""
    found: list[float] = []

    def look(name: str, layer: Any, given: tuple[Any, ...], output: torch.Tensor) -> None:
        # Over samples: what is the same for all of them, a bias, tells nothing of them.
        found.append(float(output.float().std(0).mean()))

    look_at(module, lambda: objective(module, batch), look)
    return tuple(found[:-1])
