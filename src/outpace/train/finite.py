"""Whether weights, and what is kept of them, are numbers, and gradients: a loss may be none without harm.

Where all targets of a batch are ignored, torch's mean over them is not a number, and its gradient zero.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

SCALES = 16
"""of a loss that are tried, each half of the one before: the first may be too large"""


def finite(tensors: Iterable[Any]) -> bool:
    """Whether they are, or this rank's parts of them."""
    own = (each.to_local() if hasattr(each, "to_local") else each for each in tensors)
    dense = (part.coalesce().values() if part.is_sparse else part for part in own)
    return all(bool(part.isfinite().all()) for part in dense)


def fit_scale(
    scaler: torch.amp.GradScaler, optimizer: torch.optim.Optimizer, backward: Callable[[], None]
) -> list[torch.Tensor]:
    """Halve the scale of a loss until its gradients are finite, each time by another ``backward`` pass; those
    that it gives then, unscaled. The weights stay as they are.
    """
    found: list[torch.Tensor] = []
    for _ in range(SCALES):
        backward()
        scaler.unscale_(optimizer)
        found = [each.clone() for each in own_gradients(optimizer)]
        scaler.update()
        optimizer.zero_grad()
        if not scaler.is_enabled() or finite(found):
            break
    return found


def own_gradients(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    """Of its own weights: nothing clears those of others, which add up from step to step."""
    weights = (weight for group in optimizer.param_groups for weight in group["params"])
    return [weight.grad for weight in weights if weight.grad is not None]
