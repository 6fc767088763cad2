"""What a faster architecture would give: measured, told, never applied."""

from __future__ import annotations

import torch
from torch import nn

from tests.train.toys import Time, model, same, trainer


class Slow(nn.Tanh):
    """An activation that takes the time's seconds."""

    def __init__(self, time: Time, seconds: float) -> None:
        super().__init__()
        self.time, self.seconds = time, seconds

    def __deepcopy__(self, memo: object) -> Slow:
        return Slow(self.time, self.seconds)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.time.s += self.seconds
        return super().forward(x)


class Block(nn.Module):
    """A residual block around a slow activation."""

    def __init__(self, time: Time, seconds: float) -> None:
        super().__init__()
        self.inner, self.slow = nn.Linear(8, 8), Slow(time, seconds)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = x + self.slow(self.inner(x))
        return found


class Ticks(nn.Module):
    """What every step takes at least."""

    def __init__(self, time: Time) -> None:
        super().__init__()
        self.time = time

    def __deepcopy__(self, memo: object) -> Ticks:
        return self

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.time.s += 1.0
        return x


def test_what_would_be_faster_is_told_and_not_applied() -> None:
    time = Time()
    net = nn.Sequential(Ticks(time), Block(time, 1.0), Block(time, 0.005), nn.Linear(8, 3))
    before = {name: value.clone() for name, value in net.state_dict().items()}
    found = trainer(model=net, now=time).suggestions()
    assert [each.change for each in found] == ["ReLU for Slow", "without 1 (Block)"]
    assert found[0].gain.speedup > found[1].gain.speedup > 1.9
    assert found[0].told().startswith("ReLU for Slow: steps 2.0")
    assert same(dict(net.state_dict()), before)
    assert "forward" not in net[1].__dict__
    assert all(p.grad is None for p in net.parameters())


def test_where_nothing_is_faster_nothing_is_told() -> None:
    time = Time()
    net = nn.Sequential(Ticks(time), model(dropout=0.5))
    assert trainer(model=net, now=time).suggestions() == []
