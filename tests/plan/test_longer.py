"""Epochs that go on with the batches of the next, where the loop around them can bear it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from outpace.plan.longer import Longer, may_be_longer
from outpace.seams.host import Host
from outpace.seams.loader import LoaderSeam


class Told:
    """Numbers; notes of each whether the loop that asks for it may be longer."""

    def __init__(self, count: int) -> None:
        self.left = count
        self.told: list[bool] = []

    def __iter__(self) -> Told:
        return self

    def __next__(self) -> int:
        self.told.append(may_be_longer(sys._getframe(1)))
        if not self.left:
            raise StopIteration
        self.left -= 1
        return self.left


def test_a_plain_loop() -> None:
    numbers, named = Told(2), {"sum": 0}
    for number in numbers:
        named["sum"] += number
    assert numbers.told == [True, True, True]


def test_a_loop_that_stores_by_an_index_counts_on_its_turns() -> None:
    numbers, places = Told(2), [0, 0]
    for index, number in enumerate(numbers):
        places[index] = number
    assert numbers.told == [False, False, False]


def test_a_call_of_next_is_no_loop() -> None:
    numbers = Told(2)
    while numbers.left:
        next(numbers)
    assert numbers.told == [False, False]


@pytest.fixture
def seam() -> Iterator[LoaderSeam]:
    host = Host()
    seam = LoaderSeam(host)
    seam.install()
    yield seam
    seam.remove()


def answering(*answers: bool) -> Callable[[], bool]:
    given = iter(answers)
    return lambda: next(given)


@pytest.mark.parametrize("workers", [0, 1])
def test_an_epoch_goes_on_as_long_as_that_is_wanted(seam: LoaderSeam, workers: int) -> None:
    loader = DataLoader(
        TensorDataset(torch.arange(6)), 2, num_workers=workers, persistent_workers=workers > 0
    )
    record = seam.record_of(loader)
    record.trains = True
    seam.longer = Longer(answering(True, True, False))
    seen = []
    for (batch,) in loader:
        seen.append(batch.tolist())
        seam.host.steps += 1
    assert seen == 3 * [[0, 1], [2, 3], [4, 5]]
    assert record.given == 3
    # One that nobody wants longer is as it was, and one that no step is made of: it is judged by.
    for answer in (False, True):
        seam.longer = Longer(answering(answer))
        assert sum(1 for _ in loader) == 3


def test_what_does_not_train_stays_as_it_is(seam: LoaderSeam) -> None:
    loader = DataLoader(TensorDataset(torch.arange(6)), 2)
    seam.longer = Longer(answering(True))
    assert sum(1 for _ in loader) == 3
