"""Gradients that nobody uses: found, spared while that is asked, and there again after."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from tests.remedies.trainings import hosted
from torch import nn

from outpace.seams.setup import AS_IS, Setup
from outpace.seams.unused import unused

SPARED = replace(AS_IS, no_unused_gradients=True)


class Distilled:
    """A student that learns from a teacher whose graph is kept."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.teacher, self.student = nn.Linear(4, 2), nn.Linear(4, 2)
        self.optimizer = torch.optim.SGD(self.student.parameters(), 0.1)

    def step(self) -> None:
        x = torch.ones(3, 4)
        self.optimizer.zero_grad()
        nn.functional.mse_loss(self.student(x), self.teacher(x)).backward()
        self.optimizer.step()


def trained(setup: Setup, steps: int = 6) -> Distilled:
    with hosted() as host:
        one = Distilled()
        host.switch(setup)
        for _ in range(steps):
            one.step()
    return one


def asking(model: nn.Module) -> list[bool]:
    return [parameter.requires_grad for parameter in model.parameters()]


def test_a_teacher_asks_for_none_while_that_is_wanted() -> None:
    with hosted() as host:
        one = Distilled()
        for _ in range(2):
            one.step()
        assert len(list(unused(host))) == 2
        host.switch(SPARED)
        assert asking(one.teacher) == [False, False]
        assert asking(one.student) == [True, True]
        before = [p.grad.clone() for p in one.teacher.parameters() if p.grad is not None]
        one.step()
        for parameter, gradient in zip(one.teacher.parameters(), before, strict=True):
            assert parameter.grad is not None
            assert torch.equal(parameter.grad, gradient), "as it was when it was spared"
        host.switch(AS_IS)
        assert asking(one.teacher) == [True, True]
        host.switch(SPARED)
    assert asking(one.teacher) == [True, True], "the seam has gone"


def test_from_the_first_step_on_and_with_the_same_bits() -> None:
    plain, spared = trained(AS_IS), trained(SPARED)
    for one, other in zip(plain.student.parameters(), spared.student.parameters(), strict=True):
        assert torch.equal(one, other)


def test_where_no_optimizer_has_any_none_are_unused() -> None:
    with hosted() as host:
        one = Distilled()
        for _ in range(3):
            nn.functional.mse_loss(one.student(torch.ones(3, 4)), torch.ones(3, 2)).backward()
        assert not list(unused(host))


def test_an_optimizer_that_begins_late_has_its_parameters() -> None:
    """It is made before the first step, and stepped epochs after it."""
    with hosted(SPARED) as host:
        one = Distilled()
        late = torch.optim.SGD(one.teacher.parameters(), 0.1)
        for _ in range(6):
            one.step()
        assert not list(unused(host))
        assert asking(one.teacher) == [True, True]
        assert late.param_groups[0]["params"][0].grad is not None


@pytest.mark.parametrize("group", [False, True])
def test_what_an_optimizer_is_given_later_asks_again(group: bool) -> None:
    with hosted(SPARED) as host:
        one = Distilled()
        for _ in range(6):
            one.step()
        assert asking(one.teacher) == [False, False]
        given = [one.teacher.weight]
        if group:
            one.optimizer.add_param_group({"params": given})
        else:
            late = torch.optim.SGD(given, 0.1)
            assert late.param_groups
        assert asking(one.teacher) == [True, False]
        before = one.teacher.weight.clone()
        one.step()
        assert torch.equal(one.teacher.weight, before) is not group
        host.switch(AS_IS)
        assert asking(one.teacher) == [True, True]


def test_the_seam_leaves_no_trace() -> None:
    plain = torch.optim.Optimizer.add_param_group
    with hosted():
        assert torch.optim.Optimizer.add_param_group is not plain
    assert torch.optim.Optimizer.add_param_group is plain
