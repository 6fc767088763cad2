"""A model's own train() and eval() may do more than to set a flag: they are called, and undone."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from outpace.seams.modes import evaluating
from outpace.train.facts import matrices_of
from outpace.train.layers import set_learning, traceless
from outpace.train.objective import Objective
from outpace.train.run import Run
from outpace.train.strategies import Constant
from tests.train.toys import fit, goes_on_exactly, points, ready


class Frozen(nn.Module):
    """Its BatchNorm is never in training mode, as of detectors that are fine-tuned."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.norm, self.head = nn.BatchNorm1d(8), nn.Linear(8, 3)

    def train(self, mode: bool = True) -> Frozen:
        super().train(mode)
        self.norm.eval()
        return self

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.head(self.norm(x))
        return found


class Attends(nn.Module):
    """Calls a layer by the names of what it is given."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.attn = nn.Linear(8, 8), nn.MultiheadAttention(8, 2, batch_first=True)
        self.last = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.first(x)[:, None]
        found: torch.Tensor = self.last(self.attn(query=h, key=h, value=h)[0][:, 0])
        return found


def test_layers_that_are_called_by_names_are_looked_at() -> None:
    """All that "auto" would try was left out for them."""
    share, takes = matrices_of(Attends(), Objective(F.cross_entropy), ready()[0])
    assert 0.0 < share < 1.0
    assert 0.0 < takes < math.inf


class Merging(nn.Linear):
    """Learns an update of its weight, which is merged into it in evaluation mode (LoRA)."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        super().__init__(8, 3)
        self.requires_grad_(False)
        self.down, self.up = nn.Parameter(torch.randn(2, 8)), nn.Parameter(torch.zeros(3, 2))
        self.merged = False

    def train(self, mode: bool = True) -> Merging:
        super().train(mode)
        if mode == self.merged:
            self.weight.data += (-1 if mode else 1) * (self.up @ self.down).detach()
            self.merged = not mode
        return self

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found = F.linear(x, self.weight, self.bias)
        return found if self.merged else found + x @ self.down.T @ self.up.T


class Cached(nn.Linear):
    """In evaluation mode it goes by what it has kept, which training empties."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        super().__init__(8, 3)
        self.kept: torch.Tensor | None = None

    def train(self, mode: bool = True) -> Cached:
        super().train(mode)
        if mode:
            self.kept = None
        elif self.kept is None:
            self.kept = self.weight.detach().clone()
        return self

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight = self.weight if self.training else self.kept
        assert weight is not None
        return F.linear(x, weight, self.bias)


def test_what_a_model_keeps_out_of_training_stays_out() -> None:
    net = Frozen()
    fit(model=net, epochs=3)
    assert int(net.norm.num_batches_tracked) == 0


@pytest.mark.parametrize("learning", [True, False])
def test_what_evaluation_merges_learns_in_all_steps(learning: bool) -> None:
    net = Merging().train(learning)
    learnt: list[bool] = []

    class Learnt:
        def gradients(self, run: Run) -> None:
            learnt.append(net.up.grad is not None)

    result = fit(model=net, epochs=3, callbacks=[Learnt()])
    assert learnt == [True] * 30
    assert net.training == learning
    again = Merging()
    again.load_state_dict(result.weights)
    x, _ = points(24)
    torch.testing.assert_close(net.eval()(x), again.eval()(x))


def test_what_evaluation_merges_goes_on(tmp_path: Path) -> None:
    def go(folder: Path, **given: Any) -> Any:
        return fit(model=Merging().eval(), checkpoint=folder, every=0, **given)

    goes_on_exactly(go, tmp_path / "cut", 17, go(tmp_path / "whole"))


def test_each_validation_is_of_the_weights_as_they_are() -> None:
    net, told = Cached(), list[float]()
    x, y = points(120, seed=1)

    def true(run: Run) -> None:
        weight = net.weight.detach()
        told.append(float(F.cross_entropy(F.linear(x, weight, net.bias.detach()), y)))

    result = fit(model=net, valid=[(x, y)], strategies=[Constant(rate=0.02)], callbacks=[true])
    assert [row.valid_loss for row in result.history] == pytest.approx(told)


def test_layers_of_either_mode_stay_in_it_inside_of_others() -> None:
    net = nn.Sequential(nn.Sequential(nn.Linear(8, 8), nn.Dropout()), Cached())
    net[0].eval()[1].train()
    net[1].eval()
    before = [layer.training for layer in net.modules()]
    set_learning(net)
    with evaluating(net):
        assert not any(layer.training for layer in net.modules())
    assert [layer.training for layer in net.modules()] == before
    net(ready()[0][0])  # what the inner one keeps is there


def test_a_look_leaves_a_buffer_that_had_not_come_away() -> None:
    net = Coming()
    with traceless(net):
        net(torch.ones(2, 4))
        assert net.mean is not None
    assert net.mean is None


class Coming(nn.Linear):
    """Its buffer comes with the first batch."""

    def __init__(self) -> None:
        super().__init__(4, 2)
        self.mean: torch.Tensor | None
        self.register_buffer("mean", None)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.mean = x.mean(0) if self.mean is None else self.mean
        return super().forward(x - self.mean)
