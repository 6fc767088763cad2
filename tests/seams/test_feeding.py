"""Batches from a feed: the one that is in force works, the others rest."""

from __future__ import annotations

import subprocess
import sys
import time
import weakref
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import DataLoader, IterableDataset

from outpace.seams.feeding import Feeding
from outpace.seams.loader_record import Record, Runner
from outpace.seams.resting import wake_all
from outpace.seams.setup import AS_IS, Feed, Setup

AHEAD, THREADS = Feed(executor="ahead"), Feed(executor="threads", workers=2)
LOADER: DataLoader[Any] = DataLoader([0, 1, 2, 3])  # type: ignore[arg-type]


class Counting:
    """A feed of two batches an epoch."""

    gave_up = False

    def __init__(self) -> None:
        self.working = True

    def epoch(self) -> Iterator[Any]:
        yield from (1, 2)

    def pause(self) -> None:
        self.working = False

    def resume(self) -> None:
        self.working = True

    def pids(self) -> list[int]:
        return []

    def queued(self) -> int:
        return 0

    def close(self) -> None:
        self.working = False


def make_feed(loader: DataLoader[Any], feed: Feed) -> Runner:
    if isinstance(loader.dataset, IterableDataset):
        raise NotImplementedError
    return Counting()


def own() -> str:
    return "own"


def fed(feed: Feed) -> Setup:
    return replace(AS_IS, feed=feed)


@pytest.fixture
def feeding() -> Feeding:
    return Feeding(make_feed)


def test_an_epoch_is_as_long_as_the_scripts(feeding: Feeding) -> None:
    record = Record(trains=True, length=3)
    feeding.switch(fed(AHEAD), [record])
    seen = []
    for record.given in range(4):
        try:
            seen.append(feeding.batch(record, own, lambda: LOADER))
        except StopIteration:
            break
    assert seen == [1, 2, 1]
    assert record.given == 3


def test_only_the_feed_in_force_works(feeding: Feeding) -> None:
    record = Record(trains=True)
    for feed in (AHEAD, THREADS):
        feeding.switch(fed(feed), [record])
        feeding.batch(record, own, lambda: LOADER)
    working = {feed: runner.working for feed, runner in record.runners.items()}  # type: ignore[attr-defined]
    assert working == {AHEAD: False, THREADS: True}
    feeding.switch(AS_IS, [record])
    assert not any(runner.working for runner in record.runners.values())  # type: ignore[attr-defined]
    assert feeding.batch(record, own, lambda: LOADER) == "own"


def test_workers_that_rest_are_let_work_while_another_loaders_epoch_begins(
    feeding: Feeding, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that was stopped with a lock of the data set's kept those of a validation waiting for ever."""
    asleep = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        monkeypatch.setattr("outpace.seams.feeding.worker_pids", lambda _: [asleep.pid])
        record = Record(trains=True)
        record.iterator = lambda: LOADER  # type: ignore[assignment,return-value]
        record.recent.see(1)
        feeding.switch(replace(AS_IS, free_input=True), [record])
        assert stopped(asleep.pid)
        feeding.let_work([record])
        assert not stopped(asleep.pid)
        assert feeding.batch(record, own, lambda: LOADER) == 1
        assert stopped(asleep.pid), "the arm goes on"
    finally:
        wake_all()
        asleep.kill()
        asleep.wait()


def stopped(pid: int) -> bool:
    """Once it had time to hear of it."""
    time.sleep(0.1)
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def test_what_cannot_be_fed(feeding: Feeding) -> None:
    class Stream(IterableDataset[int]):
        def __iter__(self) -> Iterator[int]:
            yield 0

    feeding.switch(fed(AHEAD), [])
    with pytest.raises(NotImplementedError, match="cannot be fed"):
        feeding.batch(Record(trains=True), own, lambda: DataLoader(Stream()))


def test_a_loader_that_keeps_its_iterator_says_itself_where_an_epoch_ends(feeding: Feeding) -> None:
    loader: Any = DataLoader([0, 1, 2, 3])  # type: ignore[arg-type]
    iterator = loader.iterator = iter(loader)
    record = Record(trains=True, length=4, given=4, mixed=True, iterator=weakref.ref(iterator))
    assert feeding.batch(record, own, lambda: loader) == "own"
    assert record.given == 0
    del loader.iterator
    record.given = 4
    with pytest.raises(StopIteration):
        feeding.batch(record, own, lambda: loader)


def test_only_others_batches_end_with_the_length(feeding: Feeding) -> None:
    """The script's own iterator knows best: its data set may have grown, or tell another length."""
    record = Record(trains=True, length=4, given=4)
    assert feeding.batch(record, own, lambda: LOADER) == "own"
    feeding.switch(fed(AHEAD), [record])
    with pytest.raises(StopIteration):
        feeding.batch(record, own, lambda: LOADER)
    feeding.switch(AS_IS, [record])
    with pytest.raises(StopIteration):
        feeding.batch(record, own, lambda: LOADER)


def test_what_was_refused_is_tried_again_only_with_other_functions() -> None:
    tried: list[Feed] = []

    def refuse(loader: DataLoader[Any], feed: Feed) -> Runner:
        tried.append(feed)
        raise NotImplementedError

    feeding, record = Feeding(refuse), Record(trains=True)
    loader: DataLoader[Any] = DataLoader([0, 1, 2, 3])  # type: ignore[arg-type]
    for _ in range(3):
        assert feeding.runner(loader, record, THREADS) is None
    assert tried == [THREADS]
    for setup in (fed(THREADS), AS_IS, fed(THREADS)):
        feeding.switch(setup, [record])
    with pytest.raises(NotImplementedError, match="cannot be fed"):
        feeding.batch(record, own, lambda: loader)
    assert feeding.queued(record) == 0
    assert feeding.runner(loader, record, AHEAD) is None
    assert tried == [THREADS, AHEAD]
    loader.collate_fn = list
    assert feeding.runner(loader, record, THREADS) is None
    assert tried == [THREADS, AHEAD, THREADS]
    for runner in record.runners.values():
        assert runner.pids() == []
        runner.close()
