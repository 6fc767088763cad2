"""Channels that go together are found, and what cannot be told apart is kept."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from outpace.errors import UsageError
from outpace.train.compress.groups import Group, groups
from tests.train.compress.nets import net, pictures


def found(model: nn.Module, x: torch.Tensor) -> dict[str, Group]:
    return {group.name: group for group in groups(model.eval(), (x,), {})}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("chain", {"0": 8, "4": 6, "9": 10}),
        ("residual", {"stem+outer": 8, "inner": 6}),
        ("unet", {"down": 6, "bottom": 8, "up": 5}),
        ("gated", {"wide+excite": 8, "squeeze": 4}),
        ("mixer", {"grow": 12, "along": 7}),
        ("attends", {"mlp.1": 32}),
    ],
)
def test_channels_that_can_be_removed(name: str, expected: dict[str, int]) -> None:
    assert {n: group.size for n, group in found(*net(name)).items()} == expected


def test_who_carries_and_who_reads_them() -> None:
    chain = found(*net("chain"))
    assert chain["0"].carriers == (("1", 0, 1),)
    assert chain["0"].readers == (("4", 0, 1),)
    assert chain["4"].readers == (("9", 0, 9),)  # flattened: nine places of each channel
    unet = found(*net("unet"))
    assert unet["down"].carriers == (("norm", 0, 1),)
    assert unet["up"].readers == (("head", 6, 1),)  # behind the other's
    gated = found(*net("gated"))["wide+excite"]
    assert gated.carriers == (("depthwise", 0, 1),)
    assert {slot.layer for slot in gated.readers} == {"squeeze", "narrow"}


class Body(nn.Module):
    """Two layers, with something between them."""

    def __init__(self, between: Any) -> None:
        super().__init__()
        self.one, self.two = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 2, 1)
        self.scale = nn.Parameter(torch.ones(4, 1, 1))
        self.norm = nn.GroupNorm(2, 4)
        self.between = between

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.two(self.between(self, self.one(x)))  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    "between",
    [
        lambda body, x: body.norm(x),
        lambda body, x: x.softmax(1),
        lambda body, x: x * body.scale,
        lambda body, x: x.view(-1, 4, 16, 16),
        lambda body, x: x.roll(1, 1),
        lambda body, x: torch.cat([x[:, 2:], x[:, :2]], 1),
        lambda body, x: F.conv2d(x, body.one.weight[:, :1].expand(-1, 4, -1, -1), padding=1),
        lambda body, x: x + x.sum(1, keepdim=True),
        lambda body, x: F.pad(x, (0, 0, 0, 0, 1, 1))[:, 1:5],
    ],
)
def test_what_mixes_channels_keeps_them(between: Any) -> None:
    assert found(Body(between), pictures()) == {}


@pytest.mark.parametrize(
    "between",
    [
        lambda body, x: (x * 2.0 + 1).clamp(min=0.0).contiguous(),
        lambda body, x: F.interpolate(F.avg_pool2d(x, 2), scale_factor=2),
        lambda body, x: x.transpose(1, 2).transpose(1, 3).transpose(1, 2),
        lambda body, x: x.unsqueeze(-1).squeeze(-1),
    ],
)
def test_what_keeps_them_apart_does_not(between: Any) -> None:
    assert set(found(Body(between), pictures())) == {"one"}


def test_layers_that_are_used_in_other_ways_are_kept() -> None:
    twice = nn.Conv2d(3, 3, 3, padding=1)
    assert found(nn.Sequential(twice, nn.ReLU(), twice, nn.Conv2d(3, 2, 1)), pictures()) == {}
    tied = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4), nn.Linear(4, 2))
    assert set(found(tied, torch.randn(2, 4))) == {"0", "2"}
    tied[2].weight = tied[0].weight
    assert found(tied, torch.randn(2, 4)) == {}
    hooked = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2))
    hooked[0].register_forward_hook(lambda layer, given, output: output.flip(1))
    assert found(hooked, torch.randn(2, 4)) == {}


class Branching(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.sum() > 0:
            x = -x
        found: torch.Tensor = self.layer(x)
        return found


def test_a_model_that_cannot_be_traced_is_refused() -> None:
    with pytest.raises(
        UsageError, match=r"torch\.fx cannot trace Branching \(TraceError: "
    ) as told:
        groups(Branching().eval(), (torch.randn(2, 4),), {})
    assert "branches on data" in (told.value.hint or "")


def test_tracing_leaves_torch_as_it_is() -> None:
    before = torch.arange
    found(*net("attends"))
    assert torch.arange is before
    with pytest.raises(UsageError):
        found(Branching(), torch.randn(2, 4))
    assert torch.arange is before


def test_arguments_that_are_not_given_have_their_defaults() -> None:
    model, x = net("mixer")
    assert [g.name for g in groups(model, (x,), {})] == ["grow", "along"]
    assert [g.name for g in groups(model, (), {"x": x})] == ["grow", "along"]
