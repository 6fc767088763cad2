"""Which loaders are learnt from, where a step draws from several, or some are there to validate on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from tests.remedies.trainings import hosted
from torch import nn
from torch.utils.data import DataLoader, Dataset

from outpace.seams.host import Host
from outpace.seams.loader import LoaderSeam
from outpace.seams.loader_record import Record
from outpace.seams.setup import AS_IS


class Rows(Dataset[torch.Tensor]):
    """Counts how many rows were made."""

    def __init__(self, count: int) -> None:
        self.count, self.made = count, 0

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> torch.Tensor:
        self.made += 1
        return torch.full((3,), float(index))


def loader(batches: int = 6) -> DataLoader[torch.Tensor]:
    return DataLoader(Rows(2 * batches), batch_size=2)


def record_of(host: Host, batches: DataLoader[torch.Tensor]) -> Record:
    seam = host.seams["loader"]
    assert isinstance(seam, LoaderSeam)
    return seam.record_of(batches)


def trained() -> tuple[nn.Module, Callable[..., None]]:
    """A model, and what learns from batches."""
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.001)

    def learn(*batches: torch.Tensor) -> None:
        optimizer.zero_grad()
        torch.stack([model(x).mean() for x in batches]).sum().backward()
        optimizer.step()

    return model, learn


def test_all_loaders_that_give_to_each_step_train() -> None:
    _, learn = trained()
    labelled, unlabelled, others = loader(), loader(), loader()
    with hosted(switching=True) as host:
        next(iter(others))  # only looked at
        for index, (x, u) in enumerate(zip(labelled, unlabelled, strict=True)):
            learn(x, u)
            if index == 2:
                made = [batches.dataset.made for batches in (labelled, unlabelled)]
                host.switch(replace(AS_IS, free_input=True))
        assert [record_of(host, each).trains for each in (labelled, unlabelled)] == [True, True]
        assert not record_of(host, others).trains
        assert host.micro_steps == 1
        assert host.steps == 6
        assert [batches.dataset.made for batches in (labelled, unlabelled)] == made, "both are free"


def judge(model: nn.Module, *loaders: DataLoader[torch.Tensor]) -> None:
    model.eval()
    with torch.no_grad():
        for batches in loaders:
            for x in batches:
                model(x)
    model.train()


@pytest.mark.parametrize("at", ["before", "between", "after"])
def test_what_is_only_judged_by_does_not_train_where_no_loader_feeds_the_steps(at: str) -> None:
    model, learn = trained()
    loaders = [loader(), loader()]
    with hosted() as host:
        if at == "before":
            judge(model, *loaders)
        for _ in range(2):
            for index in range(4):
                x = torch.randn(2, 3)
                if at == "between" and index == 2:
                    judge(model, *loaders)
                learn(x)
            if at == "after":
                judge(model, *loaders)
        assert [record_of(host, each).trains for each in loaders] == [False, False]
        assert not host.fed


@pytest.mark.parametrize("validates", [False, True])
def test_a_loader_whose_batches_a_teacher_is_asked_about_first_trains(validates: bool) -> None:
    _, learn = trained()
    teacher, batches, others = nn.Linear(3, 1), loader(), loader()
    with hosted() as host:
        for x in batches:
            with torch.no_grad():
                teacher(x)
            if validates:
                judge(teacher, others)
            learn(x)
        assert record_of(host, batches).trains
        assert not record_of(host, others).trains
