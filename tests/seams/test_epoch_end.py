"""Epochs that run dry: who can be told so, and who must not."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from torch.utils.data import DataLoader

from outpace.seams.epoch import Epoch
from outpace.seams.epoch_end import ends_here
from outpace.seams.host import Host
from outpace.seams.loader import LoaderSeam
from outpace.seams.loader_record import Record


class Dry:
    """Ten batches, of a training that is to end; a step is made of each."""

    def __init__(self, *, trains: bool = True) -> None:
        self.host, self.record = Host(), Record(trains=trains)

    def __iter__(self) -> Dry:
        return self

    def __next__(self) -> int:
        if self.record.given == 10 or ends_here(self.host, self.record, sys._getframe(1)):
            raise StopIteration
        self.record.given += 1
        self.host.steps += 1
        return self.record.given


def test_a_loop_ends_after_a_batch() -> None:
    seen = []
    for batch in Dry():
        seen.append(batch)  # noqa: PERF402
    for index, batch in enumerate(Dry()):
        seen.append(10 * (index + batch))
    assert seen == [1, 10]


def test_a_librarys_loop_too() -> None:
    assert Counter(Dry()) == {1: 1}


def test_who_asks_for_the_next_batch_gets_it() -> None:
    batches = Dry()
    assert [next(batches), next(batches), next(batches)] == [1, 2, 3]


LIBRARY = """
def by_next(batches):
    while True:
        yield next(batches)

def that_expects_the_end(batches):
    current = next(batches, None)
    while current is not None:
        try:
            coming = next(batches)
        except StopIteration:
            coming = None
        yield current
        current = coming

def plainly(batches):
    for batch in batches:
        yield batch

def passed_on(batches):
    yield from batches

def first_two(batches):
    return [next(batches), next(batches)]
"""


@pytest.fixture
def library(tmp_path: Path) -> Any:
    """A package's module."""
    path = tmp_path / "site-packages" / "library.py"
    path.parent.mkdir()
    path.write_text(LIBRARY)
    names: dict[str, Any] = {}
    exec(compile(LIBRARY, str(path), "exec"), names)  # noqa: S102
    return SimpleNamespace(**names)


def test_a_library_that_takes_the_end_for_a_fault_is_not_told_of_it(library: Any) -> None:
    """The exception would be the script's: a generator that ends so ends in a RuntimeError."""
    batches = library.by_next(iter(Dry()))
    assert [next(batches) for _ in range(10)] == list(range(1, 11))
    with pytest.raises(RuntimeError, match="StopIteration"):
        next(batches)  # as ever
    assert library.first_two(iter(Dry())) == [1, 2]
    assert library.first_two(library.plainly(Dry())) == [1, 2]


def test_a_library_that_expects_the_end_is_told_of_it(library: Any) -> None:
    assert list(library.that_expects_the_end(iter(Dry()))) == [1]
    for gives in (library.plainly, library.passed_on, library.that_expects_the_end):
        seen = []
        for batch in gives(iter(Dry())):
            seen.append(batch)  # noqa: PERF402
        assert seen == [1], gives


def test_a_generator_of_the_scripts_ends_for_who_loops_over_it() -> None:
    def passed_on() -> Iterator[int]:
        for batch in Dry():
            yield 1 * batch

    assert [batch for batch in passed_on()] == [1]  # noqa: C416
    assert sum(passed_on()) == 1
    asked = passed_on()
    assert [next(asked), next(asked)] == [1, 2]


def test_what_does_not_train_gives_all() -> None:
    assert sum(1 for _ in Dry(trains=False)) == 10


@pytest.mark.parametrize("given", [0, 1])
def test_each_epoch_gives_one(given: int) -> None:
    batches = Dry()
    batches.record.given = batches.host.steps = given
    assert sum(1 for _ in batches) == 1 - given


def test_who_judges_by_the_training_data_in_the_midst_of_an_epoch_sees_all_of_it() -> None:
    host = Host()
    seam = LoaderSeam(host)
    seam.install()
    try:
        loader = DataLoader(range(10))  # type: ignore[arg-type, var-annotated]
        record, seen, learnt = seam.record_of(loader), [], 0
        for _ in loader:
            learnt += 1
            record.trains = True
            host.steps += 1
            if learnt == 3:
                seam.dry = True
                seen.append(sum(1 for _ in loader))
        assert (learnt, seen) == (3, [10])
    finally:
        seam.remove()


@pytest.mark.parametrize("fed", [False, True], ids=["the loader's own", "from a feed"])
def test_who_judges_by_the_training_data_sees_all_of_it(fed: bool) -> None:
    """As where each epoch ends with the accuracy on what it has learnt from."""
    host = Host()
    seam = LoaderSeam(host)
    seam.install()
    try:
        loader = DataLoader(range(10))  # type: ignore[arg-type, var-annotated]
        record, seen = seam.record_of(loader), []
        record.trains = seam.dry = True
        for step in (1, 0):
            if fed:
                seam.begin_epoch(loader)
            for _ in Epoch(seam, record, loader, lambda: iter(range(10))) if fed else loader:
                host.steps += step
            seen.append(record.given)
    finally:
        seam.remove()
    assert seen == [1, 10]
