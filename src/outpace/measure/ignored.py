"""Targets that a loss is told to ignore, and what is computed for them all the same.

Where a model is to tell a few words of a text that are hidden, scores of the whole vocabulary are computed
for each word, and those of the others are ignored: the output layer, the softmax and their gradients.
"""

from __future__ import annotations

from collections import defaultdict
from types import FrameType
from typing import Any

import torch

from outpace.seams.where import place

PRODUCTS = ("addmm", "mm", "bmm", "baddbmm", "linear")
FEWEST = 1 << 16
"""scores that are worth a look"""
MOST_PRODUCTS = 2
"""that make as many numbers as there are scores: of more, others than the output layer are as wide"""


class Ignored:
    """Of the loss with the most scores. ``share``: of its targets that are ignored."""

    def __init__(self) -> None:
        self.share = 0.0
        self.where: str | None = None
        self._scores = (0, 0)
        """how many, and of how many classes"""
        self._seconds: defaultdict[tuple[int, int], float] = defaultdict(float)
        """of operators on, or that make, so many numbers in rows of such a length"""
        self._made: defaultdict[tuple[int, int], int] = defaultdict(int)
        """forward products that make these"""

    def see(self, name: str, args: Any, out: Any, seconds: float, frame: FrameType | None) -> None:
        """Look at one operator of a forward or backward pass; ``frame``: only in the former."""
        given = [each for each in (*args, out) if isinstance(each, torch.Tensor)]
        for key in {_key(each) for each in given if not (each.is_leaf and each.requires_grad)}:
            if key[0] >= FEWEST:
                self._seconds[key] += seconds
        if name in PRODUCTS and frame is not None:
            self._made[_key(out)] += 1
        if name == "nll_loss_forward" and args[0].numel() > max(self._scores[0], FEWEST):
            scores, targets, _, _, ignored = args[:5]
            self._scores, self.where = _key(scores), place(frame)
            self.share = float((targets == ignored).float().mean())

    @property
    def seconds(self) -> float:
        """Those that the ignored ones' part of the scores took; 0 where other layers may be meant."""
        if not self._scores[0] or self._made[self._scores] > MOST_PRODUCTS:
            return 0.0
        return self.share * self._seconds[self._scores]


def _key(tensor: torch.Tensor) -> tuple[int, int]:
    """Numbers, and the length of a row as it lies: of a gradient that is turned for a product too."""
    if not tensor.is_floating_point() or tensor.layout is not torch.strided or tensor.dim() < 2:
        return 0, 0
    turned = tensor.dim() == 2 and tensor.stride(0) == 1 and tensor.stride(1) > 1
    return tensor.numel(), tensor.shape[0] if turned else tensor.shape[-1]
