"""Calls of a model on a batch that it learns from anyway."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from tests.remedies.trainings import hosted
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from outpace.measure.called_again import STEPS, Again, called_again, called_alike
from outpace.seams.helper import EACH
from outpace.seams.host import Host


@pytest.fixture
def host() -> Iterator[Host]:
    with hosted(switching=True) as host:
        yield host


KNOWN = EACH + 2
"""steps after which a call without gradients is no validation's"""
Step = Callable[[nn.Module, torch.Tensor], torch.Tensor]


class Headed(nn.Sequential):
    """Gives one thing or another."""

    def forward(self, x: torch.Tensor, head: str = "", drop: float = 0.0) -> torch.Tensor:
        out: torch.Tensor = super().forward(nn.functional.dropout(x, drop, self.training))
        return -out if head == "other" else out


def looked(host: Host, step: Step) -> tuple[Again | None, int]:
    """What is found of a training, and after how many steps."""
    model = Headed(nn.Linear(8, 8))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    looking = None
    for steps, (x,) in enumerate(DataLoader(TensorDataset(torch.randn(64, 8)), 4)):
        if steps == KNOWN:
            looking = called_again(host)
        if looking is not None:
            try:
                next(looking)
            except StopIteration as end:
                return end.value, steps - KNOWN
        optimizer.zero_grad()
        step(model, x).backward()
        optimizer.step()
    raise AssertionError("it looks on")


def for_a_metric(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    loss = model(x).square().mean()
    model(x).argmax(1)
    return loss


def twice_for_one_loss(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """As R-Drop has it: two draws of dropout are to agree."""
    return (model(x) - model(x)).square().mean()


def on_another_view(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        wanted = model(x + 0.1)
    return (model(x) - wanted).square().mean()


def in_another_mode(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    model.eval()
    with torch.no_grad():
        wanted = model(x)
    model.train()
    return (model(x) - wanted).square().mean()


def changed_meanwhile(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        wanted = model(x)
    x += 0.1
    return (model(x) - wanted).square().mean()


def by_another_draw(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """What the model gives under another draw of dropout is what it is to give."""
    with torch.no_grad():
        wanted = model(x, drop=0.5)
    return (model(x, drop=0.5) - wanted).square().mean()


def of_another_head(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        weights = model(x, head="other")
    return (weights * model(x)).square().mean()


def with_another_setting(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """Which may do something besides."""
    model(x, head="same")
    return model(x).square().mean()


def test_a_second_call_for_a_metric_is_found(host: Host) -> None:
    found, steps = looked(host, for_a_metric)
    assert found is not None
    assert found.seconds > 0
    line = for_a_metric.__code__.co_firstlineno + 2
    assert found.where is not None
    assert found.where.endswith(f"test_called_again.py:{line}")
    assert steps == STEPS
    assert host.seams["module"].on_call is None  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "step",
    [
        twice_for_one_loss,
        on_another_view,
        in_another_mode,
        changed_meanwhile,
        by_another_draw,
        of_another_head,
        with_another_setting,
    ],
)
def test_calls_that_are_learnt_from_or_give_something_else_are_none(host: Host, step: Step) -> None:
    found, steps = looked(host, step)
    assert found is None
    assert steps == 1, "and the next steps are not looked at"


def test_old_guesses_that_several_steps_learn_from_are_none(host: Host) -> None:
    """As of a policy, asked once for what it then learns from for some steps."""
    kept: list[torch.Tensor] = []

    def step(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
        if len(kept) % 3 == 0:
            kept.append(x)
            with torch.no_grad():
                model(x)
        else:
            kept.append(kept[-1])
        return model(kept[-1]).square().mean()

    assert looked(host, step)[0] is None


def anew_for_each_derivative(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """As a network of a differential equation often is; on a copy of the same numbers, too."""
    model.eval()
    x.requires_grad_()
    slope = torch.autograd.grad(model(x).sum(), x, create_graph=True)[0]
    return (
        (slope - model(x).mean() + model(x.clone().detach().requires_grad_()).mean())
        .square()
        .mean()
    )


def with_and_without_its_input(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """As a discriminator is asked of what a generator gives, and of the same detached."""
    model.eval()
    made = x * torch.ones((), requires_grad=True)
    return model(made).square().mean() + model(made.detach()).square().mean()


@pytest.mark.parametrize(
    ("step", "calls"),
    [(anew_for_each_derivative, 2), (twice_for_one_loss, 0), (with_and_without_its_input, 0)],
)
def test_calls_that_give_the_same_and_are_learnt_from_are_found(
    host: Host, step: Step, calls: int
) -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.Dropout(), nn.Tanh())
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    looking, found = None, None
    for steps in range(2 + STEPS + 1):
        looking = called_alike(host) if steps == 2 else looking
        try:
            if looking is not None:
                next(looking)
        except StopIteration as end:
            found = end.value
            break
        optimizer.zero_grad()
        step(model, torch.randn(4, 8)).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    assert (found.calls if found else 0) == calls
    if found is not None:
        assert 0.3 < found.share < 0.95
        assert found.where is not None
        assert "test_called_again.py:" in found.where
