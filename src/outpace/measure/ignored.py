"""Targets that a loss is told to ignore, and what is computed for them all the same.

Where a model is to tell a few words of a text that are hidden, scores of the whole vocabulary are computed
for each word, and those of the others are ignored: the output layer, the softmax and their gradients.
"""

from __future__ import annotations

from collections import defaultdict
from types import FrameType
from typing import Any

from outpace.measure.dispatch import tensors_in
from outpace.seams.where import place

LOSSES = ("nll_loss_forward", "nll_loss2d_forward")
FEWEST = 1 << 16
"""scores that are worth a look"""


class Ignored:
    """Of the loss with the most scores. ``share``: of its targets that are ignored."""

    def __init__(self) -> None:
        self.share, self.scores = 0.0, 0
        self.where: str | None = None
        self._seconds: defaultdict[int, float] = defaultdict(float)
        """of operators on, or that make, so many numbers"""

    def see(self, name: str, args: Any, out: Any, seconds: float, frame: FrameType | None) -> None:
        """Look at one operator of a step."""
        sizes = {each.numel() for each in tensors_in((args, out)) if each.is_floating_point()}
        for size in sizes:
            if size >= FEWEST:
                self._seconds[size] += seconds
        if name in LOSSES and args[0].numel() > max(self.scores, FEWEST):
            scores, targets, _, _, ignored = args[:5]
            self.scores, self.where = scores.numel(), place(frame)
            self.share = float((targets == ignored).float().mean())

    @property
    def seconds(self) -> float:
        """Those that the ignored ones' part of the scores took."""
        return self.share * self._seconds[self.scores] if self.scores else 0.0
