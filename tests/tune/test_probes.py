"""Probes of one step look at what is there."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch import nn

from outpace.tune.probes import denormals


def test_weights_without_numbers_have_no_denormal_ones() -> None:
    """The model of an ensemble under vmap lies on the meta device; its weights are given with each call."""
    real, bare = nn.Linear(4, 4), nn.Linear(4, 4, device="meta")
    with torch.no_grad():
        real.weight[0] = 1e-39

    def of(model: nn.Module) -> float:
        host: Any = SimpleNamespace(main_root=lambda: (model, None))
        return denormals(host)

    assert of(bare) == 0.0
    assert of(nn.Sequential(bare, real)) == 0.25
