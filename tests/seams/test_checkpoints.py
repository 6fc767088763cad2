"""Blocks that are computed again: the same bits, whatever else a forward pass moves and draws from."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from tests.remedies.trainings import hosted
from torch import nn

from outpace.seams.setup import AS_IS, Setup

AGAIN = replace(AS_IS, checkpointed=True)


class Spectral(nn.Module):
    """A power iteration in each forward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.utils.parametrizations.spectral_norm(nn.Linear(8, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.tanh(self.layer(x))


class Normed(nn.Module):
    """Statistics of torch's own, and others that are made anew."""

    mean: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.norm = nn.Linear(8, 8), nn.BatchNorm1d(8, momentum=None)
        self.register_buffer("mean", torch.zeros(8))
        self.register_buffer("mask", torch.ones(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(self.layer(x))
        self.mean = 0.9 * self.mean + 0.1 * y.detach().mean(0)
        return x + torch.tanh((y - self.mean) * self.mask)


class Written(nn.Module):
    """Statistics that a function is given, of whose changes torch keeps no count."""

    mean: torch.Tensor
    variance: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)
        self.register_buffer("mean", torch.zeros(8))
        self.register_buffer("variance", torch.ones(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        norm = nn.functional.batch_norm
        return x + torch.tanh(norm(self.layer(x), self.mean, self.variance, training=True))


class Left(nn.Module):
    """Is left out by chance, as in LayerDrop."""

    def __init__(self, chance: Callable[[], float]) -> None:
        super().__init__()
        self.layer, self.chance = nn.Linear(8, 8), chance

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.chance() < 0.5:
            return x
        return x + torch.tanh(nn.functional.dropout(self.layer(x)))


BLOCKS: dict[str, Callable[[], nn.Module]] = {
    "spectral": Spectral,
    "normed": Normed,
    "written": Written,
    "python": lambda: Left(random.random),
    "numpy": lambda: Left(np.random.rand),
}


def train(block: Callable[[], nn.Module], setup: Setup, passes: int) -> list[torch.Tensor]:
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
    model = nn.Sequential(*[block() for _ in range(3)], nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with hosted(setup) as host:
        for _ in range(5):
            optimizer.zero_grad()
            loss = model(torch.randn(16, 8)).square().mean()
            for left in reversed(range(passes)):
                loss.backward(retain_graph=left > 0)
            optimizer.step()
        assert not host.broken
    drawn = [random.random(), np.random.rand(), float(torch.rand(()))]
    return [*model.state_dict().values(), torch.tensor(drawn, dtype=torch.float64)]


@pytest.mark.parametrize("passes", [1, 2], ids=["once", "backward twice"])
@pytest.mark.parametrize("kind", BLOCKS)
def test_what_a_block_moves_is_moved_once(kind: str, passes: int) -> None:
    plain, again = (train(BLOCKS[kind], setup, passes) for setup in (AS_IS, AGAIN))
    assert all(map(torch.equal, plain, again))


def test_blocks_of_a_model_that_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
    for setup in (AS_IS, AGAIN):
        compiled = train(Written, replace(setup, compiled=True), 1)
        plain = train(Written, setup, 1)
        assert all(map(torch.allclose, plain, compiled))
