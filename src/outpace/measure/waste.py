"""Arithmetic on nothing: positions that are padding, and products with operands that are all but empty."""

from __future__ import annotations

from typing import Any

import torch

from outpace.measure.dispatch import address_of, tensors_in

EMPTY = 0.95
"""share of zeros from which on an operand is taken for one-hot; half are usual after a ReLU, and in the rows
or columns that a mask leaves there are few"""
FEWEST = 4096
"""numbers in an operand that is looked at"""


class Waste:
    """Looks at what operators are given. ``flops``: those with a zero in the product."""

    def __init__(self) -> None:
        self.flops = 0.0
        self.padding = 0.0
        self.given: set[int] = set()
        """memory of operands of the forward pass that are all but empty"""
        self.entries = 0
        """of the largest table that was looked up: a vocabulary, beside positions and kinds of tokens"""

    def see(self, name: str, args: Any, flops: float, backward: bool = False) -> None:
        """Look at one operator of so many FLOPs.

        In a backward pass gradients may be all but zero, as where a loss asks for one position of many:
        there, only what was so in the forward pass counts.
        """
        if name == "embedding":
            entries = len(args[0])
            if entries >= self.entries:
                before = self.padding if entries == self.entries else 0.0
                self.entries, self.padding = entries, max(before, padded(args[1]))
        elif flops:
            looked = [t for t in tensors_in(args) if not backward or address_of(t) in self.given]
            empty, tensor = max(
                ((scattered(t), t) for t in looked), key=lambda pair: pair[0], default=(0.0, None)
            )
            if empty >= EMPTY and tensor is not None:
                self.flops += empty * flops
                self.given.add(address_of(tensor))


def zeros(tensor: torch.Tensor) -> float:
    """Share of zeros in a matrix of some size; 0 for anything else."""
    if tensor.dim() < 2 or tensor.numel() < FEWEST or not tensor.is_floating_point():
        return 0.0
    return 1.0 - float(torch.count_nonzero(tensor.detach())) / tensor.numel()


def scattered(tensor: torch.Tensor) -> float:
    """The same where its numbers lie apart from each other, else 0: not of whole rows that are masked, or
    of units that are all dead.
    """
    empty = zeros(tensor)
    if not EMPTY <= empty < 1.0:
        return 0.0
    there = tensor.detach().flatten(0, -2) != 0
    rows, columns = (int(there.any(dim).sum()) for dim in (1, 0))
    room = min(rows * there.shape[1], columns * there.shape[0])
    return empty if int(there.sum()) <= (1 - EMPTY) * room else 0.0


def padded(indices: torch.Tensor) -> float:
    """Share of positions in a batch of sequences (batch x length) that repeat one index to an end."""
    if indices.dim() != 2 or min(indices.shape) < 2:
        return 0.0
    ends = (indices, indices.flip(1))
    share = max(_run(one) for one in ends)
    return share if share < 1.0 else 0.0  # all alike: no sequences


def _run(indices: torch.Tensor) -> float:
    last = indices[:, -1].mode().values
    runs = (indices.flip(1) == last).long().cumprod(1)
    return float(runs.sum()) / indices.numel()
