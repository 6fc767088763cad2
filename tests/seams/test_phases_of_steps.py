"""Whose time it is while an optimizer steps: what a closure does is the script's, backward goes on."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.remedies.trainings import hosted
from torch import nn

from outpace.seams.host import Step


class Noting(torch.optim.Optimizer):
    """Notes which phase runs before and after each call of its closure."""

    def __init__(self, weights: Any, note: Callable[[str], None]) -> None:
        super().__init__(weights, {})
        self.note = note

    def step(self, closure: Any = None) -> Any:  # type: ignore[override]
        for _ in range(2):
            self.note("before")
            with torch.enable_grad():
                loss = closure()
            self.note("after")
        return loss


@pytest.mark.parametrize("named", [False, True], ids=["positional", "keyword"])
@pytest.mark.parametrize("partial", [False, True], ids=["function", "partial"])
def test_a_closure_is_not_the_optimizers(named: bool, partial: bool) -> None:
    told: list[tuple[str, str | None]] = []
    with hosted() as host:

        def note(place: str) -> None:
            told.append((place, host.phases.current()))

        model = nn.Linear(4, 4)
        model.register_forward_hook(lambda *_: note("model"))
        optimizer = Noting(model.parameters(), note)

        def work(x: torch.Tensor) -> torch.Tensor:
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.register_hook(lambda _: note("gradient"))
            loss.backward()
            note("own")
            return loss

        closure = (
            functools.partial(work, torch.ones(2, 4)) if partial else lambda: work(torch.ones(2, 4))
        )
        optimizer.step(closure=closure) if named else optimizer.step(closure)
        assert host.steps == 1
        assert not host.phases.stack
    each = [("before", "optimizer"), ("model", "forward"), ("gradient", "backward"), ("own", None)]
    assert told == [*each, ("after", "optimizer")] * 2


def searched(begins: list[float] | None = None) -> list[torch.Tensor]:
    """Weights that LBFGS came to, which calls its closure several times a step; its losses then."""
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)), torch.randn(16, 4)
    optimizer = torch.optim.LBFGS(model.parameters(), line_search_fn="strong_wolfe")

    losses: list[float] = []

    def closure() -> Any:
        optimizer.zero_grad()
        loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
        loss.backward()  # type: ignore[no-untyped-call]
        losses.append(loss.item())
        return loss

    for _ in range(3):
        losses.clear()
        optimizer.step(closure)
        assert len(losses) > 1
        if begins is not None:
            begins.append(losses[0])
    return [weight.detach().clone() for weight in model.parameters()]


def test_a_search_with_a_closure_finds_the_same() -> None:
    alone = searched()
    with hosted() as host:
        watched = searched()
        assert host.steps == 3
    assert all(torch.equal(one, other) for one, other in zip(alone, watched, strict=True))


def test_the_loss_of_a_search_is_that_which_it_began_at() -> None:
    """A sum of all that were tried would go by how many these were."""
    begins, told, steps = list[float](), list[float](), list[Step]()
    with hosted() as host:
        host.on_loss = lambda samples, loss: told.append(loss.item())
        host.listeners.append(steps.append)
        searched(begins)
    assert told == pytest.approx(begins)
    assert [step.micro_steps for step in steps] == [1, 1, 1]


def test_a_closure_that_fails_leaves_no_phase_running() -> None:
    model = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)

    def closure() -> float:
        raise KeyError("of the script")

    with hosted() as host:
        with pytest.raises(KeyError, match="of the script"):
            optimizer.step(closure)
        assert not host.phases.stack


def test_steps_within_backward_leave_it_running_and_end_with_it() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 1))
    optimizers = {weight: torch.optim.SGD([weight], 0.01) for weight in model.parameters()}
    phases: list[str | None] = []
    stepped: list[int] = []
    losses: list[float] = []
    with hosted() as host:

        def step_at_once(weight: torch.Tensor) -> None:
            optimizers[weight].step()
            stepped[-1] += 1
            phases.append(host.phases.current())

        def on_step(step: Step) -> None:
            assert torch._C._current_graph_task_id() == -1
            assert stepped[-1] == len(optimizers)

        for weight in model.parameters():
            weight.register_post_accumulate_grad_hook(step_at_once)
        host.listeners.append(on_step)
        host.on_loss = lambda _, loss: losses.append(loss.item())
        own: list[float] = []
        for _ in range(5):
            stepped.append(0)
            loss = model(torch.ones(2, 4)).square().mean()
            own.append(loss.item())
            loss.backward()
        assert host.steps == 5
        assert not host.broken
    assert set(phases) == {"backward"}
    assert losses == own


def test_steps_after_backward_take_over_from_those_within() -> None:
    model = nn.Linear(4, 4)
    within, after = (torch.optim.SGD(model.parameters(), 0.01) for _ in range(2))
    handle = model.bias.register_post_accumulate_grad_hook(lambda _: within.step())
    with hosted() as host:
        for epoch in range(2):
            for _ in range(12):
                model(torch.ones(2, 4)).square().mean().backward()
                if epoch:
                    after.step()
            handle.remove()
        assert host.boundary == "optimizer"
        before = host.steps
        for _ in range(4):
            for _ in range(2):
                model(torch.ones(2, 4)).square().mean().backward()
            after.step()
        assert host.steps == before + 4
