"""A model with less to do, and all of its work again afterwards."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from outpace.seams.alter import PassingThrough, alter, parts_of


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 8)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Dropout(0.5)) for _ in range(3)
        )
        self.last = nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        for block in self.blocks:
            x = block(x)
        return self.last(x)


def output(net: nn.Module) -> torch.Tensor:
    torch.manual_seed(1)
    out = net(torch.ones(3, 4))
    assert isinstance(out, torch.Tensor)
    return out


def test_parts_are_the_children_and_those_in_lists() -> None:
    names = [name for name, _ in parts_of(Net())]
    assert names == ["first", "blocks.0", "blocks.1", "blocks.2", "last"]


def test_parts_that_torchscript_runs_are_none() -> None:
    net = Net()
    net.blocks[1] = torch.jit.script(nn.Linear(8, 8))
    assert [name for name, _ in parts_of(net)] == ["first", "blocks.0", "blocks.2", "last"]
    PassingThrough(net).close()  # which such a part would have refused


def test_parts_that_keep_the_shape_can_be_left_out() -> None:
    net = Net()
    passing = PassingThrough(net)
    output(net)
    passing.close()
    assert passing.kinds == dict.fromkeys(["blocks.0", "blocks.1", "blocks.2"], "Sequential")
    assert not any(module._forward_hooks for module in net.modules())


@pytest.mark.parametrize("change", [("without", "blocks.1"), ("without dropout", ""), ("relu", "")])
def test_a_change_changes_and_is_undone(change: tuple[str, str]) -> None:
    torch.manual_seed(0)
    net = Net()
    before = output(net)
    undo = alter(net, change)
    assert not torch.equal(output(net), before)
    undo()
    assert torch.equal(output(net), before)
    assert all("forward" not in module.__dict__ for module in net.modules())


def test_frozen_parts_learn_nothing_and_learn_again() -> None:
    net = Net()
    undo = alter(net, ("frozen", "blocks.1"))
    output(net).sum().backward()
    learned = {name for name, weight in net.named_parameters() if weight.grad is not None}
    assert learned == {"blocks.2.0.weight", "blocks.2.0.bias", "last.weight", "last.bias"}
    undo()
    assert all(weight.requires_grad for weight in net.parameters())


def test_what_the_script_froze_stays_frozen() -> None:
    net = Net()
    net.first.weight.requires_grad_(False)
    alter(net, ("frozen", "first"))()
    assert not net.first.weight.requires_grad
    assert net.first.bias.requires_grad
