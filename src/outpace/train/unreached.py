"""Weights that the loss does not reach, of which ranks have to know before they train together.

DistributedDataParallel waits for a gradient of each weight unless it is told to look, at each step, which
of them the loss reaches, which takes time; without that the second step fails. One batch tells: what the
loss reaches in some batches alone is seen where this one is not of them.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from outpace.train import ranks
from outpace.train.data import Batches
from outpace.train.layers import traceless
from outpace.train.objective import Objective


def unreached(
    model: torch.nn.Module, objective: Objective, train: Batches, world: int
) -> list[str]:
    """Names of weights that are to learn, and that get no gradient of the first batch on some rank.

    Model, gradients, data and generators are left as they are. Where it cannot be told there are none.
    """
    try:
        found = of_batch(model, objective, train)
    except Exception:  # training raises it too, where it is told
        found = []
    return sorted({name for names in ranks.gathered(found, world) for name in names})


def of_batch(model: torch.nn.Module, objective: Objective, train: Batches) -> list[str]:
    """Of this rank's own."""
    weights = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
    batches = train.peek(1)
    if not batches or not weights:
        return []
    # Not of a copy: a loss may reach a weight by other ways than by what it is given.
    with traceless(model), objective.kept(), torch.enable_grad():
        loss = objective(model, batches[0])
        # Not backward(), which leaves gradients, and which hooks of weights are told of.
        found: Sequence[torch.Tensor | None] = torch.autograd.grad(
            loss, list(weights.values()), allow_unused=True
        )
    return [name for name, gradient in zip(weights, found, strict=True) if gradient is None]
