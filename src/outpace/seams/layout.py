"""How images and the weights that look at them lie in memory: channel by channel, or channels innermost."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

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
        if weight.dim() == 4 and is_alone(weight):
            weight.data = weight.data.contiguous(memory_format=wanted)
            if weight.grad is not None:
                weight.grad.data = weight.grad.data.contiguous(memory_format=wanted)
    for optimizer in optimizers:
        lay_states(optimizer)


def is_alone(weight: torch.Tensor) -> bool:
    """Whether its memory is its own: what other processes have too, or is part of more, stays there."""
    if weight.device.type == "cpu" and weight.is_shared():  # type: ignore[no-untyped-call]
        return False
    return weight.untyped_storage().nbytes() <= weight.nbytes


def of_weights(optimizer: Optimizer) -> list[tuple[torch.Tensor, dict[str, Any]]]:
    """What an optimizer keeps of each weight; some keep other things beside it."""
    kept: dict[Any, Any] = optimizer.state
    return [
        (weight, state)
        for weight, state in kept.items()
        if isinstance(weight, torch.Tensor) and isinstance(state, dict)
    ]


def lies_as(tensor: torch.Tensor, weight: torch.Tensor) -> bool:
    """Whether what goes through both by address meets the same elements; they are of one shape.

    Nothing goes so through what is sparse.
    """
    if tensor.layout is not weight.layout:
        return True
    one, other = tensor.stride(), weight.stride()
    if one == other:
        return True
    return all(a == b for a, b, size in zip(one, other, weight.shape, strict=True) if size > 1)


def lay_states(optimizer: Optimizer) -> None:
    """Have what an optimizer keeps of each weight lie as that does."""
    for weight, state in of_weights(optimizer):
        for key, value in state.items():
            of_weight = isinstance(value, torch.Tensor) and value.shape == weight.shape
            if of_weight and not lies_as(value, weight):
                state[key] = torch.empty_like(weight, dtype=value.dtype).copy_(value)


def laid_in_rows(state: Any) -> Any:
    """What an optimizer keeps of a weight, as it would lie without channels last."""
    if not isinstance(state, dict):
        return state
    return {k: as_rows(v) if isinstance(v, torch.Tensor) else v for k, v in state.items()}


def grads_lie_as_weights(optimizer: Optimizer) -> bool:
    """Those of autograd do; a script may lay its own otherwise."""
    return all(
        lies_as(weight.grad, weight)
        for group in optimizer.param_groups
        for weight in group["params"]
        if weight.grad is not None
    )


def to_channels_last(tensor: torch.Tensor) -> torch.Tensor:
    """An image batch with its channels last in memory; other tensors as they are."""
    if tensor.dim() == 4 and tensor.is_floating_point():
        return tensor.contiguous(memory_format=torch.channels_last)
    return tensor


def as_rows(tensor: torch.Tensor) -> torch.Tensor:
    """What a model gives, as it would lie without: who takes it may ask for another view of it."""
    return tensor.contiguous() if tensor.dim() == 4 else tensor
