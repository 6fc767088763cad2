"""A scaled loss: gradients that are too small for the precision are made larger, and have their size again.

Of torch's GradScaler; one that is not enabled changes nothing, and is there where nothing is scaled.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from outpace.train.finite import finite

UNSCALED = torch.amp.GradScaler(enabled=False)
SCALES = 16
"""of a loss that are tried, each half of the one before: the first may be too large"""


def move(scaler: torch.amp.GradScaler, optimizer: torch.optim.Optimizer) -> None:
    """The optimizer's step, left out where a scaled gradient is not finite; no gradient is left."""
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()


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
