"""Calls of a model that never changes, on batches as they are drawn."""

from __future__ import annotations

import random
import weakref
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tests.remedies.trainings import hosted
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from outpace.measure.called_again import STEPS
from outpace.measure.frozen import Call, Frozen, _numbers, frozen
from outpace.seams.host import Host


class Teacher(nn.Sequential):
    """Called to be learnt from."""

    def forward(self, x: torch.Tensor, sigma: Any = 0.0, mixes: bool = False) -> torch.Tensor:
        share = random.random() if mixes else 0.5
        found: torch.Tensor = share * super().forward(x + getattr(sigma, "sigma", sigma))
        return found


@pytest.fixture
def host() -> Iterator[Host]:
    with hosted(switching=True) as host:
        yield host
        assert not host.broken


LEVEL = SimpleNamespace(sigma=0.5)
Wanted = Callable[[nn.Module, nn.Module, torch.Tensor], torch.Tensor]


def epochs_of(loader: DataLoader[Any]) -> Iterator[Any]:
    while True:
        yield from loader


def looked(host: Host, wanted: Wanted) -> Frozen | None:
    """What is found of a student that learns from what is ``wanted`` of its teacher."""
    student, teacher = nn.Linear(8, 8), Teacher(nn.Linear(8, 8), nn.Dropout())
    teacher.eval()
    teacher.requires_grad_(False)

    def loss(x: torch.Tensor) -> torch.Tensor:
        given = wanted(teacher, student, x)
        return (student(x) - given).square().mean()

    return found_in(host, loss, torch.optim.SGD(student.parameters(), 0.01))


def found_in(
    host: Host, loss: Callable[[torch.Tensor], torch.Tensor], optimizer: torch.optim.Optimizer
) -> Frozen | None:
    """What is found in a training by this loss of a batch."""
    looking = None
    loader = DataLoader(TensorDataset(torch.randn(16, 8)), batch_size=4)
    for steps, (x,) in enumerate(epochs_of(loader)):
        if steps == 2:
            looking = frozen(host)
        optimizer.zero_grad()
        loss(x).backward()
        optimizer.step()
        if looking is not None:
            try:
                next(looking)
            except StopIteration as end:
                return end.value
        assert steps < 2 + 2 * STEPS, "it looks on"
    raise AssertionError


def as_it_is(teacher: nn.Module, student: nn.Module, x: torch.Tensor) -> torch.Tensor:
    with torch.inference_mode():
        given = teacher(x)
    return given.clone()


def of_something_else(teacher: nn.Module, student: nn.Module, x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return teacher(x + torch.randn_like(x))


def of_the_student(teacher: nn.Module, student: nn.Module, x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return teacher(student(x))


def drawn_by_dropout(teacher: nn.Module, student: nn.Module, x: torch.Tensor) -> torch.Tensor:
    teacher.train()
    with torch.no_grad():
        return teacher(x)


def moving_average(teacher: nn.Module, student: nn.Module, x: torch.Tensor) -> torch.Tensor:
    own, other = teacher[0].weight, student.weight  # type: ignore[index]
    own.data.mul_(0.9).add_(other.data, alpha=0.1)
    with torch.no_grad():
        return teacher(x)


def of_a_part_of_it(teacher: nn.Module, student: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """As a crop by slicing is."""
    with torch.no_grad():
        return teacher(x[:3])[:1]


def of_noise(teacher: nn.Module, student: nn.Module, x: torch.Tensor) -> torch.Tensor:
    x += torch.randn_like(x)
    with torch.no_grad():
        return teacher(x)


def sampled(teacher: nn.Module, student: nn.Module, x: torch.Tensor) -> torch.Tensor:
    if len(teacher) == 2:  # type: ignore[arg-type]
        teacher.append(Noise().eval())  # type: ignore[operator]
    with torch.no_grad():
        return teacher(x)


def at_a_random_level(teacher: nn.Module, student: nn.Module, x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return teacher(x, sigma=random.random())


def with_what_may_hold_anything(
    teacher: nn.Module, student: nn.Module, x: torch.Tensor
) -> torch.Tensor:
    with torch.no_grad():
        return teacher(x, LEVEL)


def mixed_by_pythons_generator(
    teacher: nn.Module, student: nn.Module, x: torch.Tensor
) -> torch.Tensor:
    with torch.no_grad():
        return teacher(x, mixes=True)


class Noise(nn.Module):
    """Draws in evaluation mode too."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.dropout(x)


def test_a_network_that_is_copied_to_later_is_none(host: Host) -> None:
    met: list[nn.Module] = []

    def wanted(teacher: nn.Module, student: nn.Module, x: torch.Tensor) -> torch.Tensor:
        met.append(teacher)
        return as_it_is(teacher, student, x)

    found = looked(host, wanted)
    assert found is not None
    assert found.facts()["frozen_of"] == "Teacher"
    with torch.no_grad():
        met[0][0].weight += 0.1  # type: ignore[index]
    assert found.facts() == {}


@pytest.mark.filterwarnings("error")
def test_complex_numbers_change_by_their_second_part_too() -> None:
    model = nn.Module()
    model.weight = nn.Parameter(torch.ones(4, 4, dtype=torch.cfloat))
    call = Call(weakref.ref(model), None, 0.0, _numbers(model), None)
    assert not call.has_changed()
    with torch.no_grad():
        model.weight += 0.5j
    assert call.has_changed()


def test_a_teacher_that_never_changes_is_found(host: Host) -> None:
    found = looked(host, as_it_is)
    assert found is not None
    assert found.seconds > 0
    assert found.model == "Teacher"
    assert found.where is not None
    line = as_it_is.__code__.co_firstlineno + 2
    assert found.where.endswith(f"test_frozen.py:{line}")
    assert host.seams["module"].on_call is None  # type: ignore[attr-defined]
    assert host.seams["loader"].on_draw is None  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "wanted",
    [
        of_something_else,
        of_the_student,
        drawn_by_dropout,
        moving_average,
        of_a_part_of_it,
        of_noise,
        sampled,
        at_a_random_level,
        with_what_may_hold_anything,
        mixed_by_pythons_generator,
    ],
)
def test_what_gives_something_else_each_time_is_none(host: Host, wanted: Wanted) -> None:
    assert looked(host, wanted) is None


def at_one_level(teacher: nn.Module, student: nn.Module, x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return teacher(x, sigma=0.5, mixes=False)


def test_a_setting_that_is_always_the_same_is_no_matter(host: Host) -> None:
    assert looked(host, at_one_level) is not None


def test_a_model_that_is_learnt_from_is_none(host: Host) -> None:
    assert looked(host, lambda teacher, student, x: student(x).detach()) is None
