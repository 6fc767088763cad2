"""How images and the weights that look at them lie in memory: channel by channel, or channels innermost."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn
from torch.optim import Optimizer


def lay_out(module: nn.Module, optimizers: Iterable[Optimizer], *, channels_last: bool) -> None:
    """A model's weights of four dimensions, their gradients, and what optimizers keep of them.

    Fused optimizers go through all by address: they are to lie alike.
    """
    wanted = torch.channels_last if channels_last else torch.contiguous_format
    # torch's own way takes weights of 3-D convolutions for images too, and fails.
    for weight in (*module.parameters(), *module.buffers()):
        if weight.dim() == 4:
            weight.data = weight.data.contiguous(memory_format=wanted)
            if weight.grad is not None:
                weight.grad.data = weight.grad.data.contiguous(memory_format=wanted)
    for optimizer in optimizers:
        for state in optimizer.state.values():
            for key, value in state.items():
                if isinstance(value, torch.Tensor) and value.dim() == 4:
                    state[key] = value.contiguous(memory_format=wanted)


def to_channels_last(tensor: torch.Tensor) -> torch.Tensor:
    """An image batch with its channels last in memory; other tensors as they are."""
    if tensor.dim() == 4 and tensor.is_floating_point():
        return tensor.contiguous(memory_format=torch.channels_last)
    return tensor


def as_rows(tensor: torch.Tensor) -> torch.Tensor:
    """What a model gives, as it would lie without: who takes it may ask for another view of it."""
    return tensor.contiguous() if tensor.dim() == 4 else tensor
