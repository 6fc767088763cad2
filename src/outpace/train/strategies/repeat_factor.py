"""repeat_factor: samples of rare classes come several times an epoch."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import Subset, TensorDataset

from outpace.errors import UsageError
from outpace.train.strategies.base import Drawing

if TYPE_CHECKING:
    from outpace.train.run import Run

Labels = Sequence[Any] | NDArray[Any] | torch.Tensor


@final
class RepeatFactor(Drawing):
    """Samples of rare classes come more often: r = max(1, sqrt(t / f)) times an epoch.

    What: f is the share of the samples that a class is in, t the ``threshold`` below which it is rare:
    the share that each class would have were all as frequent, unless it is given (0.001 in the paper).
    A sample of several classes takes the largest r of these. Whole numbers of times
    come about by systematic sampling, anew each epoch, from seed and epoch alone.
    ``labels``: of each sample its class, or its classes; else the last tensor of a tuple, or what the
    data set has as ``targets`` or ``labels``.
    Helps: the recall of rare classes, with half of the way to balanced classes gone (the root).
    Harms: an epoch gets longer; few samples that are seen again and again are learnt by heart. What the
    model tells of how frequent classes are is off by r.
    Source: Gupta, Dollar and Girshick 2019, arXiv 1908.03195 (LVIS); the root: Mahajan et al.
    2018, arXiv 1805.00932.
    """

    name = "repeat_factor"
    sets = ("the order of samples",)

    def __init__(self, threshold: float | None = None, *, labels: Labels | None = None) -> None:
        self.threshold, self.labels = threshold, labels
        self.said = ""

    def prepare(self, run: Run) -> None:
        """Have the data drawn so."""
        loader = self.loader_of(run)
        labels = self.labels if self.labels is not None else labels_of(loader.source)
        samples, classes = pairs(labels)
        count = len(labels)
        number = int(classes.max()) + 1
        shares = np.bincount(classes, minlength=number) / count
        threshold = self.threshold or 1.0 / number
        times = np.maximum(1.0, np.sqrt(threshold / shares))
        factors = np.ones(count)
        np.maximum.at(factors, samples, times[classes])
        loader.repeat(factors)
        self.said = (
            f"repeat_factor: {(times > 1.0).sum()} of {number} classes are below {threshold:.2g} of "
            f"the samples and come up to {times.max():.2g} times as often: an epoch has "
            f"{loader.order.size:,} samples in the place of {count:,}"
        )

    def begin(self, run: Run) -> None:
        """Say so."""
        run.note(self.said)


def labels_of(data: Any) -> Labels:
    """The class of each sample of a data set. Raises UsageError where they are not to be seen."""
    if isinstance(data, TensorDataset):
        return data.tensors[-1]
    if isinstance(data, Subset):
        whole = plain(labels_of(data.dataset))
        return [whole[index] for index in data.indices]
    for name in ("targets", "labels"):
        found: Any = getattr(data, name, None)
        if hasattr(found, "__len__") and len(found) == len(data):
            return found  # type: ignore[no-any-return]
    raise UsageError(
        f"repeat_factor: the class of each sample is not to be seen from a {type(data).__name__}",
        "give them: RepeatFactor(labels=[...])",
    )


def pairs(labels: Labels) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """A sample and a class of it, all of them; classes are numbered from 0.

    ``labels``: a class each, several each, or a matrix of 0 and 1 with a column for each class. Raises
    UsageError for other matrices, such as tokens.
    """
    matrix = np.asarray(labels.cpu()) if isinstance(labels, torch.Tensor) else labels
    if isinstance(matrix, np.ndarray) and matrix.size > len(matrix):
        if not ((matrix == 0) | (matrix == 1)).all():
            shape = " x ".join(map(str, matrix.shape))
            raise UsageError(
                f"repeat_factor: labels are {shape} numbers, and not 0 or 1 for each class",
                "give them: RepeatFactor(labels=[...])",
            )
        samples, columns = np.nonzero(matrix.reshape(len(matrix), -1))
        return samples, np.unique(columns, return_inverse=True)[1]
    if isinstance(matrix, np.ndarray) and matrix.ndim == 1 and matrix.dtype.kind in "biufUS":
        return np.arange(len(matrix)), np.unique(matrix, return_inverse=True)[1]
    several = [
        set(label)
        if isinstance(label, Collection) and not isinstance(label, str | bytes)
        else {label}
        for label in map(plain, plain(labels))
    ]
    samples = np.repeat(np.arange(len(several)), [len(each) for each in several])
    classes = np.unique([label for each in several for label in each], return_inverse=True)[1]
    return samples, classes


def plain(labels: Any) -> Any:
    """Python's numbers in the place of a tensor or an array."""
    return labels.tolist() if hasattr(labels, "tolist") else labels
