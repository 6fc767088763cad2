"""Epochs that go on with the batches of the next, where the loop around them can bear it."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from outpace.plan.longer import Longer, divides_by_length, may_be_longer
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


def test_a_loop_that_looks_up_by_the_number_of_a_batch_counts_on_its_turns() -> None:
    numbers, rates = Told(2), [0.1, 0.2]
    for index, number in enumerate(numbers):
        assert rates[index] + number
    counted, step = Told(2), 0
    for number in counted:
        assert rates[step] + number
        step += 1  # noqa: SIM113
    together, others = Told(2), iter([1, 2])
    for number in together:
        assert next(others) + number
    assert numbers.told == counted.told == together.told == [False, False, False]


def test_a_number_may_be_an_attribute_or_be_made_anew() -> None:
    numbers, rates, at = Told(2), [0.1, 0.2], SimpleNamespace(step=0)
    for number in numbers:
        assert rates[at.step] + number
        at.step += 1
    counted, step = Told(2), 0
    for number in counted:
        assert rates[step] + number
        step = step + 1
    assert numbers.told == counted.told == [False, False, False]


def test_the_number_of_a_batch_may_be_told() -> None:
    numbers, said = Told(2), []
    for index, number in enumerate(numbers):
        said.append(f"{index} of 2: {number}")
    assert numbers.told == [True, True, True]


def test_a_function_that_is_told_the_number_of_a_batch_may_look_something_up_by_it() -> None:
    numbers, places = Told(2), [0, 0]

    def store(index: int, number: int) -> None:
        places[index] = number

    for index, number in enumerate(numbers):
        store(index, number)
    assert numbers.told == [False, False, False]
    counted, step = Told(2), 0
    for number in counted:
        store(step, number)
        step = 1 + step
    assert counted.told == [False, False, False]
    plain, total = Told(2), 0.0
    for index, number in enumerate(plain):
        number = number + number  # noqa: PLW2901
        total += number
        print(index, max(0, index), abs(number), hash(total))
    assert plain.told == [True, True, True]


def test_who_draws_from_a_generator_may_count_on_its_turns() -> None:
    numbers, places = Told(2), [0, 0]

    def moved(numbers: Told) -> Iterator[int]:
        for number in numbers:  # noqa: UP028
            yield number

    for index, number in enumerate(moved(numbers)):
        places[index] = number
    assert numbers.told == [False, False, False]


def test_a_length_that_is_divided_by_is_seen() -> None:
    text = """
data = Digits()
train_loader = DataLoader(data, 32)
for x, y in tqdm(train_loader):
    right += 1
SHARE
"""
    shares = (
        "right / len(train_loader)",
        "right / len(data)",
        "n = len(train_loader.dataset)\nright / n",
    )
    for share in (*shares, "right / len(test_loader)", "print(len(train_loader))"):
        tree = ast.parse(text.replace("SHARE", share))
        loop = next(node for node in tree.body if isinstance(node, ast.For))
        assert divides_by_length(loop, tree) is (share in shares), share


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
