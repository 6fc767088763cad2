"""Rounded weights whose gradients pass the rounding."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from outpace.train.compress.int8 import int8_layer
from outpace.train.compress.straight import as_they_are, round_weights, through

LAYERS: list[tuple[nn.Module, torch.Tensor]] = [
    (nn.Conv1d(16, 16, 3, padding="same"), torch.randn(2, 16, 9)),
    (nn.Conv2d(16, 8, 3, stride=2, padding=1, groups=2), torch.randn(2, 16, 9, 9)),
    (nn.Conv3d(16, 16, 1, bias=False), torch.randn(2, 16, 3, 3, 3)),
    (nn.Embedding(40, 16, padding_idx=0), torch.randint(40, (2, 5))),
]


def test_gradients_of_a_sparse_embedding_stay_sparse() -> None:
    """SparseAdam takes no others."""
    layer = nn.Embedding(40, 16, sparse=True)
    optimizer, before = torch.optim.SparseAdam(layer.parameters()), layer.weight.detach().clone()
    round_weights(layer)
    layer(torch.tensor([3, 5, 3])).square().sum().backward()
    assert layer.weight.grad is not None
    assert layer.weight.grad.is_sparse
    optimizer.step()
    changed = (layer.weight != before).any(1).nonzero().flatten()
    assert changed.tolist() == [3, 5]


@pytest.mark.parametrize(("layer", "given"), LAYERS)
def test_a_layer_gives_what_its_int8_one_will(layer: nn.Module, given: torch.Tensor) -> None:
    plain = layer(given)
    round_weights(layer)
    assert torch.allclose(layer(given), int8_layer(layer)(given), atol=1e-6)
    assert not torch.equal(layer(given), plain)
    as_they_are(layer)
    assert torch.equal(layer(given), plain)
    as_they_are(layer)


@pytest.mark.parametrize(("layer", "given"), LAYERS)
def test_gradients_are_those_at_the_rounded_weights(layer: nn.Module, given: torch.Tensor) -> None:
    weight = layer.weight
    assert isinstance(weight, nn.Parameter)
    before = weight.detach().clone()
    round_weights(layer)
    layer(given).square().sum().backward()
    found = weight.grad
    assert found is not None
    assert torch.equal(weight, before)
    as_they_are(layer)
    layer.zero_grad()
    with torch.no_grad():
        weight.copy_(through(weight))
    layer(given).square().sum().backward()
    assert weight.grad is not None
    assert torch.allclose(found, weight.grad, rtol=1e-4, atol=1e-5)
    with torch.no_grad():
        weight.copy_(before)
    layer.zero_grad()
