"""Operators are laid at the script's lines that call them; the training's own loop is none of a step's."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from outpace.measure.dispatch import OperatorWatch, name_of
from outpace.measure.origins import Origins
from outpace.records.compute import Calls
from outpace.seams.where import user_frame


class Watch(OperatorWatch):
    def __init__(self) -> None:
        super().__init__()
        self.origins = Origins()
        self.before = True

    def see(self, operator: Any, args: Any, kwargs: Any, out: Any) -> None:
        frame = user_frame(sys._getframe(1))
        assert frame is not None
        if self.before:
            self.origins.see(frame, name_of(operator), self.took_s, beside=False)
        else:
            self.origins.see_afterwards(frame, updates=True)


class Cell(nn.Module):
    def forward(self, x: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
        mixed = x + state
        return mixed.tanh()


class OverTime(nn.Module):
    """A loop over time in each of two layers, which are a loop too."""

    def __init__(self, layers: int = 2) -> None:
        super().__init__()
        self.cells = nn.ModuleList([Cell() for _ in range(layers)])

    def read(self, cell: nn.Module, x: torch.Tensor) -> torch.Tensor:
        state = torch.zeros(4)
        seen = []
        for time in range(20):
            state = cell(x[time], state)
            seen.append(state)
        return torch.stack(seen)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for cell in self.cells:
            x = self.read(cell, x)
        return x


class AtOnce(OverTime):
    def read(self, cell: nn.Module, x: torch.Tensor) -> torch.Tensor:
        return cell(x, torch.zeros(4)) * cell(x, x)


class InOneLine(OverTime):
    def read(self, cell: nn.Module, x: torch.Tensor) -> torch.Tensor:
        return torch.stack([cell(row, row) for row in x])


def trained(model: nn.Module) -> Origins:
    """Epochs, batches, and steps of a model; looked at in the last of them."""
    weight = torch.ones(4, requires_grad=True)
    optimizer = torch.optim.SGD([weight], 0.1)
    for _ in range(2):
        for batch in torch.randn(3, 20, 4):
            watch = Watch()
            with watch:
                loss = model(batch * weight).sum()
                watch.before = False
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
    assert watch.failure is None
    return watch.origins


def line_of(function: Callable[..., Any], after: int) -> str:
    """Such a line of a function, as it is told."""
    return f"tests/measure/test_origins.py:{function.__code__.co_firstlineno + after}"


def busiest(model: nn.Module) -> Calls:
    found = trained(model).busiest()
    assert found is not None
    return found


@pytest.fixture(autouse=True)
def _told_from_here(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(request.config.rootpath)


def test_the_innermost_loop_of_a_step_that_calls_most_is_told() -> None:
    """By its busiest line, whoever is called there; the loops of epochs and batches are none of a step."""
    found = busiest(OverTime())
    assert found.in_loop
    assert found.where == line_of(OverTime.read, 4)
    assert found.function == "OverTime.read"
    assert found.operators >= 2 * 20 * 3


def test_a_comprehension_is_a_loop() -> None:
    found = busiest(InOneLine())
    assert found.in_loop
    assert found.where == line_of(InOneLine.read, 1)


def test_without_a_loop_within_it_is_the_one_around() -> None:
    assert busiest(AtOnce()).where == line_of(OverTime.forward, 2)


def test_without_any_loop_it_is_the_function_that_calls_most() -> None:
    found = busiest(Straight())
    assert not found.in_loop
    assert (found.function, found.where) == ("Straight.forward", line_of(Straight.forward, 2))
    assert Origins().busiest() is None


class Straight(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.wide, self.square = torch.ones(4, 2000), torch.ones(2000, 2000)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + 1
        x = (x * 2).relu().tanh().exp().log1p()
        return x @ self.wide @ self.square


def test_the_line_that_computes_longest() -> None:
    found = trained(Straight()).dearest()
    assert found is not None
    assert (found.where, found.operator) == (line_of(Straight.forward, 3), "mm")
    assert 0.5 < found.share < 1
    assert not found.beside
    assert Origins().dearest() is None


class Apart(nn.Module):
    """Four products in a function of their own, two in the model's own lines, each as dear."""

    def __init__(self) -> None:
        super().__init__()
        self.square = torch.ones(700, 700)

    def chained(self, x: torch.Tensor) -> torch.Tensor:
        x = x @ self.square
        x = x @ self.square
        x = x @ self.square
        return x @ self.square

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.sum() * self.square
        x = self.chained(x)
        x = x @ self.square
        return x @ self.square


def test_a_function_that_computes_for_most_of_the_time_over_several_lines() -> None:
    found = trained(Apart()).dearest()
    assert found is not None
    assert found.function == "Apart.chained"
    first = Apart.chained.__code__.co_firstlineno
    assert first < int(found.where.rpartition(":")[2]) <= first + 4
    assert 0.5 < found.share < 0.9
    assert found.operator == "mm"


def test_a_line_with_the_models_call_and_a_loss_is_the_models() -> None:
    origins, frame = Origins(), sys._getframe()
    origins.see(frame, "mm", 3.0, beside=False)
    origins.see(frame, "nll_loss", 1.0, beside=True)
    found = origins.dearest()
    assert found is not None
    assert (found.operator, found.share, found.beside) == ("mm", 0.75, False)


def stepped(batches: int, micro: int = 0) -> Origins:
    """Operators in a closure that is defined in the loop over batches, some with a backward pass each."""
    origins, frame = Origins(), sys._getframe()
    for _ in range(batches):

        def closure() -> None:
            inner = sys._getframe()
            for _ in range(micro):
                origins.see(inner, "mm", 1.0, beside=False)
                origins.see_afterwards(inner, updates=False)
            origins.see(inner, "mm", 1.0, beside=False)

        closure()
        origins.see_afterwards(frame, updates=True)
    return origins


@pytest.mark.parametrize("micro", [0, 4])
def test_a_loop_of_the_training_is_none_of_the_step(micro: int) -> None:
    """Around a closure that is defined in it, or over micro-batches of a backward pass each."""
    found = stepped(2, micro).busiest()
    assert found is not None
    assert not found.in_loop


def test_frames_of_other_threads_tell_nothing() -> None:
    """Autograd's for a GPU have none of the script's."""
    origins, torchs = Origins(), torch.nn.Linear(1, 1)
    frames: list[Any] = []
    torchs.register_forward_hook(lambda *_: frames.append(sys._getframe(1)))
    thread = threading.Thread(target=torchs, args=(torch.ones(1),))
    thread.start()
    thread.join()
    origins.see_afterwards(frames[0], updates=True)
    assert not origins.others
    assert origins.updating() is None
