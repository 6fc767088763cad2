"""Weights that were trained before are told by their norms."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from outpace.train.pretrained import GLANCES, pretrained
from tests.train.toys import fit, model


class LlamaRMSNorm(nn.Module):
    """As that of transformers: no class of torch's."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.weight * x / x.square().mean(-1, keepdim=True).sqrt()
        return found


def net(norm: nn.Module) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), norm, nn.Linear(16, 3))


NORMS = (
    lambda: nn.LayerNorm(16),
    lambda: nn.LayerNorm(16, bias=False),
    lambda: nn.RMSNorm(16),
    lambda: nn.GroupNorm(4, 16),
    lambda: nn.BatchNorm1d(16),
    LlamaRMSNorm,
)


@pytest.mark.parametrize("number", range(len(NORMS)))
def test_a_training_is_seen(number: int) -> None:
    made = net(NORMS[number]())
    assert not pretrained(made)
    fit(model=made, epochs=1)
    assert pretrained(made)
    for weight in made[1].parameters():
        weight.requires_grad_(False)
    assert not pretrained(made), "a head that is new, over a backbone that is frozen"


def test_first_weights_are_not_taken_for_a_training() -> None:
    zero, drawn = nn.BatchNorm1d(16), nn.BatchNorm1d(16)
    nn.init.zeros_(zero.weight)  # as of the last norm of a residual block
    nn.init.normal_(drawn.weight, 1.0, 0.02)  # as of DCGAN
    assert not pretrained(net(zero))
    assert not pretrained(net(drawn))
    assert not pretrained(nn.utils.parametrizations.weight_norm(nn.Linear(8, 3)))


def test_statistics_tell_where_there_are_no_scales() -> None:
    made = net(nn.BatchNorm1d(16, affine=False))
    for _ in range(GLANCES):  # as where shapes are looked at
        made(torch.randn(4, 8))
    assert not pretrained(made)
    fit(model=made, epochs=1)
    made(torch.randn(4, 8))
    assert pretrained(made)


def test_without_norms_nothing_tells() -> None:
    made = model()
    fit(model=made, epochs=1)
    assert not pretrained(made)
