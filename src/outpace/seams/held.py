"""Which weights optimizers have."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch.optim import Optimizer


def learned_by(optimizers: Iterable[Optimizer]) -> list[torch.Tensor]:
    """The weights that optimizers learn."""
    return [weight for o in optimizers for group in o.param_groups for weight in group["params"]]


def held_by(*optimizers: Optimizer) -> set[int]:
    """Which weights (id) they have."""
    return {id(weight) for weight in learned_by(optimizers)}
