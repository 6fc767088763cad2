"""A model that is called again for us is as it was, and so is a graph of the script's that waits."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from tests.remedies.trainings import hosted
from torch import nn
from torch.autograd import grad_mode

from outpace.measure.again import unseen


class Moving(nn.Module):
    """Has a scale that it moves where it is, a mean that it makes anew, and one that it leaves alone."""

    scale: torch.Tensor
    mean: torch.Tensor
    fixed: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.norm = nn.Linear(4, 4), nn.BatchNorm1d(4)
        for name in ("scale", "mean", "fixed"):
            self.register_buffer(name, torch.ones(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.scale.mul_(0.9)
        self.mean = 0.9 * self.mean + random.random() + np.random.rand()
        return self.norm(self.layer(x)) * self.scale * self.fixed + self.mean


def called_again(model: nn.Module, x: torch.Tensor) -> None:
    with hosted(switching=True) as host, unseen(host, model), torch.no_grad():
        model(x)


def test_a_graph_that_waits_goes_backward() -> None:
    model, x = Moving(), torch.randn(8, 4)
    out = model(x)
    before = {name: (buffer, buffer.clone()) for name, buffer in model.named_buffers()}
    draws = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state()  # type: ignore[union-attr, index]
    called_again(model, x)
    for name, buffer in model.named_buffers():
        own, value = before[name]
        assert buffer is own, name
        assert torch.equal(buffer, value), name
    assert random.getstate() == draws[0]
    assert np.random.get_state()[1].tolist() == draws[1]  # type: ignore[union-attr, index]
    assert torch.equal(torch.get_rng_state(), draws[2])
    out.sum().backward()


def test_where_torch_cannot_leave_its_count_a_buffer_that_stays_is_not_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(grad_mode, "_unsafe_preserve_version_counter")
    model, x = Moving(), torch.randn(8, 4)
    out = model(x).sum() + (model.layer(x) * model.fixed).sum()
    versions = model.fixed._version
    called_again(model, x)
    assert model.fixed._version == versions
    del out


def test_buffers_made_in_inference_mode() -> None:
    with torch.inference_mode():
        model = nn.BatchNorm1d(4).eval()
    called_again(model, torch.randn(8, 4))
