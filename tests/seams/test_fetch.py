"""Each DataLoader's fetches are counted by themselves, wherever they are made."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from tests.remedies.trainings import hosted
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

from outpace.seams.fetch import LOADERS, FetchSeam
from outpace.seams.host import Host
from outpace.seams.loader import LoaderSeam

TRAINING, VALIDATION, EPOCHS = 6, 2, 3


def loader(batches: int, workers: int) -> DataLoader[tuple[torch.Tensor, ...]]:
    data = TensorDataset(torch.randn(2 * batches, 3))
    return DataLoader(data, batch_size=2, num_workers=workers)


def counted(host: Host, number: int, workers: int) -> float:
    seam = host.seams["fetch"]
    assert isinstance(seam, FetchSeam)
    assert not seam.totals(number, workers=not workers).batches
    return seam.totals(number, workers=workers > 0).batches


def number_of(host: Host, batches: DataLoader[tuple[torch.Tensor, ...]]) -> int:
    seam = host.seams["loader"]
    assert isinstance(seam, LoaderSeam)
    return seam.record_of(batches).number


@pytest.mark.parametrize("anew", [False, True], ids=["kept", "made anew each epoch"])
@pytest.mark.parametrize("workers", [0, 1])
def test_a_validation_is_counted_by_itself(workers: int, anew: bool) -> None:
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    data = TensorDataset(torch.randn(2 * TRAINING, 3))
    with hosted() as host:
        validation = loader(VALIDATION, workers)
        kept = None
        for _ in range(EPOCHS):
            if anew or kept is None:
                kept = DataLoader(data, batch_size=2, num_workers=workers)
            for (x,) in kept:
                optimizer.zero_grad()
                model(x).mean().backward()
                optimizer.step()
            with torch.no_grad():
                for (x,) in validation:
                    model(x)
        assert kept is not None
        assert counted(host, number_of(host, kept), workers) == EPOCHS * TRAINING
        assert counted(host, number_of(host, validation), workers) == EPOCHS * VALIDATION


def test_two_that_are_drawn_from_in_turn_are_told_apart() -> None:
    with hosted() as host:
        one, other = loader(TRAINING, 0), loader(VALIDATION, 0)
        list(zip(one, other, strict=False))
        assert counted(host, number_of(host, one), 0) == VALIDATION + 1
        assert counted(host, number_of(host, other), 0) == VALIDATION


def test_the_latest_of_very_many_count_together() -> None:
    with hosted() as host:
        for _ in range(LOADERS + 3):
            list(loader(1, 0))
        assert counted(host, 0, 0) == 1
        assert counted(host, LOADERS + 2, 0) == 4


def test_torch_is_left_as_it_was() -> None:
    base = torch.utils.data._utils.fetch._BaseDatasetFetcher
    before = base.__init__
    with hosted():
        assert base.__init__ is not before
    assert base.__init__ is before


class Table(Dataset[torch.Tensor]):
    """Rows that another thread of the same process makes, as a library's pool does, or waits for."""

    def __init__(self, make: Callable[[], object]) -> None:
        self.make = make

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> torch.Tensor:
        pool = threading.Thread(target=self.make)
        pool.start()
        pool.join()
        return torch.ones(3)


def digest() -> None:
    hashlib.pbkdf2_hmac("sha256", b"", b"", 100_000)


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize(("make", "busy"), [(digest, True), (partial(time.sleep, 0.03), False)])
def test_threads_that_work_for_a_fetch_are_no_waiting(
    make: Callable[[], object], busy: bool, workers: int
) -> None:
    with hosted() as host:
        batches = DataLoader(Table(make), batch_size=2, num_workers=workers)
        for x in batches:
            nn.Linear(3, 1)(x).mean().backward()
        seam = host.seams["fetch"]
        assert isinstance(seam, FetchSeam)
        found = seam.totals(number_of(host, batches), workers=workers > 0)
    assert found.looked
    assert found.cpu < 0.5 * found.looked_wall
    assert (found.beside > 10 * found.cpu) == busy


class Collate:
    """Knows its options as attributes, and raises KeyError for any other."""

    def __init__(self, **options: int) -> None:
        self.__dict__["options"] = options

    def __getattr__(self, name: str) -> int:
        return self.options[name]

    def __call__(self, samples: list[torch.Tensor]) -> torch.Tensor:
        return torch.stack(samples)


def test_a_collate_function_that_knows_no_name() -> None:
    data: Any = torch.randn(4, 3)
    with hosted() as host:
        batches: DataLoader[Any] = DataLoader(data, batch_size=2, collate_fn=Collate(pad=0))
        assert torch.equal(torch.cat(list(batches)), data)
        assert counted(host, number_of(host, batches), 0) == 2
        assert not host.broken


def test_a_long_pass_before_the_training_leaves_its_fetches_to_be_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("outpace.seams.fetch.LOOK_NS", 1e12)
    with hosted() as host:
        one, other = loader(TRAINING, 0), loader(VALIDATION, 0)
        for _ in one:
            pass
        for _ in other:
            pass
        seam = host.seams["fetch"]
        assert isinstance(seam, FetchSeam)
        for each in (one, other):
            assert seam.totals(number_of(host, each), workers=False).looked == 1
