"""Optimizers under other implementations: what the script saves, loads and gets back is its own."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.conftest import RECIPE_ELSEWHERE
from tests.remedies.trainings import hosted
from torch import nn

from outpace.in_code import apply
from outpace.seams.setup import AS_IS

RECIPE = """
[[remedies]]
name = "fused_optimizer"
keeps = "numerics"

[[remedies]]
name = "channels_last"
keeps = "numerics"
"""


def made(weights: Any = None, state: Any = None, **how: Any) -> tuple[nn.Module, Any]:
    """A small network and its optimizer, going on from what was saved."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 5, 3), nn.ReLU(), nn.Conv2d(5, 4, 3))
    optimizer = torch.optim.AdamW(net.parameters(), 0.01, **how)
    if weights is not None:
        net.load_state_dict(weights)
        optimizer.load_state_dict(state)
    return net, optimizer


def train(net: nn.Module, optimizer: Any) -> None:
    for number in range(3):
        images = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(number))
        net(images).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def options(groups: Any) -> list[tuple[Any, Any]]:
    return [(group["fused"], group["foreach"]) for group in groups]


@pytest.mark.parametrize("own", [None, True])
def test_a_run_without_us_goes_on_from_what_was_saved(own: bool | None) -> None:
    """Fused kernels of torch on a CPU go through weights and states by address."""
    plain = made(fused=own)
    train(*plain)
    with hosted(replace(AS_IS, fused=True, channels_last=True)):
        net, optimizer = made(fused=own)
        train(net, optimizer)
        saved = copy.deepcopy((net.state_dict(), optimizer.state_dict()))
        train(net, optimizer)
        assert options(optimizer.param_groups) == [(True, False)]
    assert options(saved[1]["param_groups"]) == options(plain[1].state_dict()["param_groups"])
    later = made(*saved, fused=own)
    for each in (plain, later):
        train(*each)
    for one, other in zip(plain[0].parameters(), later[0].parameters(), strict=True):
        assert torch.allclose(one, other, atol=1e-5)


def test_steps_stay_fused_after_the_script_has_gone_back() -> None:
    with hosted(replace(AS_IS, fused=True)):
        net, optimizer = made()
        train(net, optimizer)
        optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
        assert options(optimizer.param_groups) == [(True, False)]
        assert options(optimizer.state_dict()["param_groups"]) == [(None, None)]


def test_a_recipe_that_is_taken_back_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "outpace.toml"
    path.write_text(RECIPE_ELSEWHERE + RECIPE)
    net, optimizer = made()
    host = apply(path, model=net, optimizer=optimizer)
    train(net, optimizer)
    assert options(optimizer.param_groups) == [(True, False)]
    host.remove()
    assert options(optimizer.param_groups) == [(None, None)]
    kept = [each["exp_avg"] for each in optimizer.state.values()]
    assert all(each.is_contiguous() for each in (*net.parameters(), *kept))


class Counting(torch.optim.SGD):
    """Keeps a number of its own among what it keeps of weights."""

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        self.state["k"] = torch.tensor([1.0]) + self.state.get("k", 0.0)  # type: ignore[index, call-overload]
        self.state["name"] = "counting"  # type: ignore[index]
        super().step()


@pytest.mark.parametrize("setup", [{"watched": False}, {"fused": True, "channels_last": True}])
def test_an_optimizer_may_keep_what_is_no_weights(setup: dict[str, Any]) -> None:
    with hosted(switching=True) as host:
        net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        torch.optim.SGD(net.parameters(), 0.01)  # from here on torch tells of its steps, too
        optimizer = Counting(net.parameters(), 0.01, momentum=0.9)
        for index in range(6):
            host.switch(replace(AS_IS, **setup) if index == 3 else AS_IS)
            optimizer.zero_grad()
            net(torch.randn(2, 3, 8, 8)).mean().backward()
            optimizer.step()
            copy.deepcopy(optimizer.state_dict())
        assert not host.broken
        assert host.steps == 6


def test_steps_end_by_their_backward_pass_where_the_optimizers_seam_is_out() -> None:
    with hosted(switching=True) as host:
        net, optimizer = made()
        for index in range(6):
            if index == 3:
                host.fail("optimizer", RuntimeError("on purpose"))
            optimizer.zero_grad()
            net(torch.randn(2, 3, 8, 8)).mean().backward()
            optimizer.step()
        assert host.steps == 6


@pytest.mark.parametrize("kind", ["NAdam", "AdamW"])
def test_options_that_an_optimizer_has_not_are_not_left_in_it(kind: str) -> None:
    def keys(groups: Any) -> set[str]:
        return {key for group in groups for key in group}

    with hosted() as host:
        net, _ = made()
        optimizer = getattr(torch.optim, kind)(net.parameters())
        plain = keys(optimizer.param_groups)
        train(net, optimizer)
        for setup in (AS_IS, replace(AS_IS, foreach=True), replace(AS_IS, fused=True)):
            host.switch(setup)
            train(net, optimizer)
            assert keys(optimizer.param_groups) == plain
            assert keys(optimizer.state_dict()["param_groups"]) == plain
        assert not host.broken
    assert keys(optimizer.param_groups) == plain


def fitted(iterations: int) -> tuple[int, list[float]]:
    """An equation's coefficients by one call of LBFGS: steps seen, and the losses."""
    torch.manual_seed(0)
    x, weight = torch.randn(64, 5), torch.zeros(5, requires_grad=True)
    wanted = torch.sin(x).sum(1)
    optimizer = torch.optim.LBFGS(
        [weight], lr=0.01, max_iter=iterations, tolerance_grad=0.0, tolerance_change=0.0
    )
    losses = []

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = (torch.sin(x * weight).sum(1) - wanted).square().mean()
        loss.backward()  # type: ignore[no-untyped-call]
        losses.append(float(loss.detach()))
        return loss

    with hosted() as host:
        for _ in range(2):
            optimizer.step(closure)  # type: ignore[arg-type]
        assert not host.broken
    return host.steps, losses


def test_a_search_is_one_step_and_a_training_in_one_call_is_many() -> None:
    steps, losses = fitted(20)
    assert steps == 2
    steps, losses = fitted(150)
    assert len(losses) > 250
    assert steps == len(losses) - 64


def test_each_pass_of_a_long_search_is_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("outpace.seams.optimizer.LONG_S", -1.0)
    steps, losses = fitted(20)
    assert steps == len(losses) - 1


@pytest.mark.parametrize("dampening", [0.0, 0.5])
def test_a_first_gradient_may_come_later_than_others(dampening: float) -> None:
    """Which torch's fused kernel for SGD does not bear; where nothing is dampened the steps are the same."""
    weights = {}
    for fused in (None, True):
        torch.manual_seed(0)
        first, late = nn.Linear(4, 4), nn.Linear(4, 4)
        learnt = [*first.parameters(), *late.parameters()]
        with hosted(replace(AS_IS, fused=fused)):
            optimizer = torch.optim.SGD(learnt, 0.1, momentum=0.9, dampening=dampening)
            for step in range(6):
                optimizer.zero_grad()
                out = first(torch.ones(2, 4))
                (out + late(out) if step > 2 else out).square().sum().backward()
                optimizer.step()
        weights[fused] = [each.detach().clone() for each in learnt]
    for one, other in zip(*weights.values(), strict=True):
        assert torch.allclose(one, other, atol=1e-6)
