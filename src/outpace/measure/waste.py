"""Arithmetic on nothing: positions that are padding, and products with operands that are all but empty."""

from __future__ import annotations

from typing import Any

import torch

from outpace.measure.dispatch import tensors_in

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

    def see(self, name: str, args: Any, flops: float) -> None:
        """Look at one operator of so many FLOPs."""
        if name == "embedding":
            self.padding = max(self.padding, padded(args[1]))
        elif (
            flops and name != "convolution_backward"
        ):  # whose gradients pooling leaves mostly empty
            empty = max((scattered(tensor) for tensor in tensors_in(args)), default=0.0)
            if empty >= EMPTY:
                self.flops += empty * flops


def zeros(tensor: torch.Tensor) -> float:
    """Share of zeros in a matrix of some size; 0 for anything else."""
    if tensor.dim() < 2 or tensor.numel() < FEWEST or not tensor.is_floating_point():
        return 0.0
    return 1.0 - float(torch.count_nonzero(tensor.detach())) / tensor.numel()


def scattered(tensor: torch.Tensor) -> float:
    """The same where its numbers lie apart from each other, else 0: not of whole rows that are masked."""
    empty = zeros(tensor)
    if empty < EMPTY:
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
    return max(_run(one) for one in ends)


def _run(indices: torch.Tensor) -> float:
    last = indices[:, -1].mode().values
    runs = (indices.flip(1) == last).long().cumprod(1)
    return float(runs.sum()) / indices.numel()
