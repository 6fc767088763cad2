"""What models are judged by: each has `update(outputs, targets)`, `compute()` and `reset()`."""

import math
from collections.abc import Sequence
from typing import final

import torch
from torch.nn import functional as F

BLANK = 0
"""of CTC, and what fills up short targets"""


@final
class Accuracy:
    """Share of samples whose class is the likeliest."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget."""
        self.right = self.count = 0

    def update(self, outputs: torch.Tensor, targets: torch.Tensor) -> None:
        """``outputs``: (samples, classes)."""
        self.right += int((outputs.argmax(1) == targets).sum())
        self.count += len(targets)

    def compute(self) -> float:
        """Between 0 and 1."""
        return self.right / self.count


@final
class MacroRecall:
    """Share of right ones of each class, averaged over the classes that there are."""

    def __init__(self, classes: int) -> None:
        self.classes = classes
        self.reset()

    def reset(self) -> None:
        """Forget."""
        self.right = torch.zeros(self.classes, dtype=torch.long)
        self.count = torch.zeros(self.classes, dtype=torch.long)

    def update(self, outputs: torch.Tensor, targets: torch.Tensor) -> None:
        """``outputs``: (samples, classes)."""
        hits = targets[outputs.argmax(1) == targets]
        self.right += torch.bincount(hits, minlength=self.classes)
        self.count += torch.bincount(targets, minlength=self.classes)

    def compute(self) -> float:
        """Between 0 and 1."""
        there = self.count > 0
        return float((self.right[there] / self.count[there]).mean())


@final
class Auc:
    """Area under the ROC curve: how often a positive sample is ranked above a negative one."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget."""
        self.scores: list[torch.Tensor] = []
        self.labels: list[torch.Tensor] = []

    def update(self, outputs: torch.Tensor, targets: torch.Tensor) -> None:
        """``outputs``: (samples,), larger for likelier ones; ``targets``: 0 or 1."""
        self.scores.append(outputs)
        self.labels.append(targets)

    def compute(self) -> float:
        """Between 0 and 1, from the ranks of the positive ones (Mann and Whitney 1947)."""
        scores, positive = torch.cat(self.scores), torch.cat(self.labels) > 0.5
        _, place, counts = torch.unique(scores, return_inverse=True, return_counts=True)
        ranks = (counts.cumsum(0) - (counts - 1) / 2)[place]  # equal scores share theirs
        many = int(positive.sum())
        above = float(ranks[positive].double().sum()) - many * (many + 1) / 2
        return above / (many * (len(scores) - many))


@final
class Mean:
    """Mean of a loss over all targets."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget."""
        self.total, self.count = 0.0, 0

    def add(self, total: torch.Tensor, count: int) -> None:
        """A batch's sum."""
        self.total += float(total)
        self.count += count

    @property
    def mean(self) -> float:
        """So far."""
        return self.total / self.count


@final
class NatsPerToken:
    """Cross entropy of a language model."""

    def __init__(self) -> None:
        self.seen = Mean()

    def reset(self) -> None:
        """Forget."""
        self.seen.reset()

    def update(self, outputs: torch.Tensor, targets: torch.Tensor) -> None:
        """``outputs``: (texts, tokens, vocabulary)."""
        total = F.cross_entropy(outputs.flatten(0, 1), targets.flatten(), reduction="sum")
        self.seen.add(total, targets.numel())

    def compute(self) -> float:
        """Nats."""
        return self.seen.mean


@final
class RootMeanSquare:
    """Error of a regression."""

    def __init__(self) -> None:
        self.seen = Mean()

    def reset(self) -> None:
        """Forget."""
        self.seen.reset()

    def update(self, outputs: torch.Tensor, targets: torch.Tensor) -> None:
        """Of one shape."""
        self.seen.add(F.mse_loss(outputs, targets, reduction="sum"), targets.numel())

    def compute(self) -> float:
        """In the targets' unit."""
        return math.sqrt(self.seen.mean)


@final
class Psnr:
    """Peak signal-to-noise ratio of images from 0 to 1."""

    def __init__(self) -> None:
        self.error = RootMeanSquare()

    def reset(self) -> None:
        """Forget."""
        self.error.reset()

    def update(self, outputs: torch.Tensor, targets: torch.Tensor) -> None:
        """Of one shape."""
        self.error.update(outputs, targets)

    def compute(self) -> float:
        """Decibel."""
        return -20 * math.log10(self.error.compute())


@final
class ErrorRate:
    """Edits that a greedily decoded CTC output is away from its target, over the targets' lengths."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget."""
        self.edits = self.count = 0

    def update(self, outputs: torch.Tensor, targets: torch.Tensor) -> None:
        """``outputs``: (samples, steps, symbols); ``targets``: (samples, most symbols)."""
        for said, target in zip(outputs.argmax(2).tolist(), targets.tolist(), strict=True):
            right = [symbol for symbol in target if symbol != BLANK]
            self.edits += edits(collapsed(said), right)
            self.count += len(right)

    def compute(self) -> float:
        """From 0; may be above 1."""
        return self.edits / self.count


def collapsed(path: Sequence[int]) -> list[int]:
    """A CTC path without repeats and blanks (Graves et al. 2006)."""
    firsts = (each for i, each in enumerate(path) if i == 0 or each != path[i - 1])
    return [each for each in firsts if each != BLANK]


def edits(one: Sequence[int], other: Sequence[int]) -> int:
    """Levenshtein distance."""
    row = list(range(len(other) + 1))
    for i, a in enumerate(one, 1):
        diagonal, row[0] = row[0], i
        for j, b in enumerate(other, 1):
            change = diagonal + (a != b)
            diagonal = row[j]
            row[j] = min(change, row[j] + 1, row[j - 1] + 1)
    return row[-1]
