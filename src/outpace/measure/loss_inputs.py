"""What a loss should not be given: probabilities for logits, and shapes that spread over each other."""

from __future__ import annotations

from collections import deque
from typing import Any

import torch

from outpace.measure.dispatch import address_of
from outpace.seams.where import caller

DIFFERENCES = ("sub", "rsub", "mse_loss", "smooth_l1_loss", "huber_loss")
FEWEST_LOOKS = 3
"""at losses that are given such: one may be so by chance"""
FEWEST_NUMBERS = 32
SOME_ROWS = 64
ROUNDING = 1e-3
"""that a row of probabilities may be off from 1, also in half precision"""


class LossInputs:
    """The line of such losses: ``softmax_twice``, ``sigmoid_twice``, ``crossed``."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[int, str | None]] = {}
        """how often, and the first line"""
        self._sigmoids: deque[torch.Tensor] = deque(maxlen=4)
        """what some gave last, held so that nothing else comes to lie there"""

    def see(self, name: str, args: tuple[Any, ...], out: Any, batch: int) -> None:
        """Look at one operator of a forward pass; ``batch``: samples in it."""
        if name == "sigmoid":
            self._sigmoids.append(out)
        if name == "_log_softmax" and _adds_up(args[0], args[1]):
            self._note("softmax_twice")
        elif name == "binary_cross_entropy_with_logits" and args[0].numel() >= FEWEST_NUMBERS:
            if address_of(args[0]) in {address_of(each) for each in self._sigmoids}:
                self._note("sigmoid_twice")
        elif name in DIFFERENCES and _crossed(args, batch):
            self._note("crossed")

    def let_go(self) -> None:
        """Hold nothing of a model between looks."""
        self._sigmoids.clear()

    def where(self, what: str) -> str | None:
        """The line of what was so at each of a few losses; empty where no frame is the script's."""
        times, where = self._seen.get(what, (0, None))
        return (where or "") if times >= FEWEST_LOOKS else None

    def _note(self, what: str) -> None:
        times, where = self._seen.get(what, (0, None))
        self._seen[what] = times + 1, where if times else caller()


def _adds_up(scores: torch.Tensor, dim: int) -> bool:
    """Whether a softmax is to be taken of what comes from one: no less than 0, each row adding up to 1."""
    if scores.numel() < FEWEST_NUMBERS or scores.shape[dim] < 2:
        return False
    some = scores.detach().movedim(dim, -1).reshape(-1, scores.shape[dim])[:SOME_ROWS].float()
    return bool((some >= 0).all()) and bool(((some.sum(-1) - 1).abs() < ROUNDING).all())


def _crossed(args: tuple[Any, ...], batch: int) -> bool:
    """Whether predictions in a column and targets in a row, one a sample, give a difference for each pair.

    What learns is on one side alone: pairs of predictions, or of targets, are meant so; and so is one of two
    that were both given a dimension for it. Losses of torch spread them before they differ.
    """
    if len(args) < 2 or not all(isinstance(each, torch.Tensor) for each in args[:2]):
        return False
    one, other = args[:2]
    if batch < 2 or one.requires_grad == other.requires_grad:
        return False
    if max(one.dim(), other.dim()) != 2 or {*one.shape, *other.shape} - {1} != {batch}:
        return False
    if one.dim() == other.dim() and one.shape != other.shape:
        return False
    return {_varies(one), _varies(other)} == {(True, False), (False, True)}


def _varies(given: torch.Tensor) -> tuple[bool, bool]:
    """Along which of two dimensions it has numbers of its own: spread ones lie in the same place."""
    sizes, strides = given.shape, given.stride()
    own = [size > 1 and stride != 0 for size, stride in zip(sizes, strides, strict=True)]
    one, two = [False] * (2 - len(own)) + own
    return one, two
