"""A metric of all samples together, as R2, F1 or the area under a curve are: a mean over batches is another
number, and none where a batch has one class of them, or one sample.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, final

import torch

MOST_BYTES = 2**30
"""of outputs and targets that are held for it"""
AVERAGED = (
    "metric= is one of all samples together, by its name, and here the mean of what batches give: give an "
    "object with update, compute and reset, as those of torchmetrics are"
)


@final
class WholeMetric:
    """Gathers what ``metric`` is called on. Where those are no tensors of one shape, or too much, it is the
    mean over batches as any other.
    """

    def __init__(self, metric: Callable[[Any, Any], Any]) -> None:
        self.metric = metric
        self.parts: list[tuple[Any, Any]] = []
        self.bytes = 0
        self.apart = False
        """it is called on each batch"""
        self.found: list[Any] = []
        """what it gave of each"""

    def add(self, outputs: Any, targets: Any) -> None:
        """Those of a batch."""
        self.parts.append((outputs, targets))
        both = (outputs, targets)
        if all(isinstance(each, torch.Tensor) and each.dim() for each in both):
            self.bytes += outputs.nbytes + targets.nbytes
            pairs = zip(both, self.parts[0], strict=True)
            same = all(one.shape[1:] == first.shape[1:] for one, first in pairs)
        else:
            same = False
        if self.apart or not same or self.bytes > MOST_BYTES:
            self.apart = True
            self.found += [self.metric(*part) for part in self.parts]
            self.parts = []

    def values(self) -> list[Any]:
        """What the metric gives: one value, or one of each batch."""
        if self.apart:
            return self.found
        outputs, targets = zip(*self.parts, strict=True)
        return [self.metric(torch.cat(outputs), torch.cat(targets))]
