"""Where a script begins another training."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from tests.remedies.trainings import hosted
from torch import nn

from outpace.measure.trainings import Another, Trainings


@pytest.fixture
def turns() -> Iterator[list[Another]]:
    """Those that were told."""
    told: list[Another] = []
    with hosted() as host:
        trainings = Trainings(host, told.append)
        host.listeners.append(lambda _: trainings.note())
        yield told


def step(loss: torch.Tensor, *optimizers: torch.optim.Optimizer) -> None:
    loss.backward()
    for optimizer in optimizers:
        optimizer.step()
        optimizer.zero_grad()


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), 0.1)


def fitted(model: nn.Module, steps: int = 12) -> None:
    """One of many trainings by the same line."""
    optimizer = sgd(model)
    for _ in range(steps):
        step(model(torch.ones(3, 4)).mean(), optimizer)


def line_of(function: Any, text: str) -> str:
    import inspect

    lines, first = inspect.getsourcelines(function)
    return f"test_trainings.py:{first + next(i for i, line in enumerate(lines) if text in line)}"


@pytest.mark.parametrize("both_there", [True, False], ids=["both there", "one is gone"])
def test_a_student_follows_its_teacher(turns: list[Another], both_there: bool) -> None:
    teacher, student = nn.Linear(4, 2), nn.Linear(4, 2)
    later = sgd(student) if both_there else None
    first = sgd(teacher)
    for _ in range(5):
        step(teacher(torch.ones(3, 4)).mean(), first)
    if not both_there:
        del first
    later = later or sgd(student)
    for _ in range(12):
        step(student(torch.ones(3, 4)).mean(), later)
    (told,) = turns
    this = test_a_student_follows_its_teacher
    assert told.after == 5
    assert told.before.endswith(line_of(this, "step(teacher("))
    assert told.where.endswith(line_of(this, "step(student("))


def test_steps_of_all_optimizers_count(turns: list[Another]) -> None:
    """Those of a discriminator beside a generator's."""
    generator, discriminator, other = nn.Linear(4, 4), nn.Linear(4, 1), nn.Linear(4, 2)
    both = sgd(generator), sgd(discriminator)
    for _ in range(5):
        step(discriminator(generator(torch.ones(3, 4))).mean(), *both)
    later = sgd(other)
    for _ in range(12):
        step(other(torch.ones(3, 4)).mean(), later)
    assert [told.after for told in turns] == [10]


def test_folds_are_one_training(turns: list[Another]) -> None:
    for _ in range(3):
        fitted(nn.Linear(4, 2))
    assert turns == []


def test_the_same_weights_are_one_training(turns: list[Another]) -> None:
    """The head first, and then all with a rate of its own."""
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    fitted(model)
    optimizer = sgd(model)
    for _ in range(12):
        step(model(torch.ones(3, 4)).mean(), optimizer)
    assert turns == []


def test_what_steps_between_is_no_training_of_its_own(turns: list[Another]) -> None:
    """A critic that is stepped more often than the actor, at another line."""
    actor, critic = nn.Linear(4, 4), nn.Linear(4, 1)
    one, other = sgd(actor), sgd(critic)
    for _ in range(5):
        step(actor(torch.ones(3, 4)).mean(), one)
        for _ in range(5):
            step(critic(torch.ones(3, 4)).mean(), other)
    assert turns == []


def test_a_copy_that_is_trained_on_is_another(turns: list[Another]) -> None:
    """As for a search of the rate, of which nothing is to be kept."""
    model = nn.Linear(4, 2)
    fitted(copy.deepcopy(model), 6)
    optimizer = sgd(model)
    for _ in range(3):
        step(model(torch.ones(3, 4)).mean(), optimizer)
    assert [told.after for told in turns] == [6]
