"""The items of a batch by several threads."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset, Subset

from outpace.seams.setup import Feed, Setup
from outpace.serve.batches import same_bits
from outpace.serve.by_threads import ByThreads
from tests.remedies.trainings import hosted


class Rows(Dataset[Any]):
    def __init__(self) -> None:
        self.x, self.y = torch.randn(24, 3), torch.arange(24)

    def __len__(self) -> int:
        return 24

    def __getitem__(self, index: int) -> Any:
        return self.x[index], self.y[index]


class Whole(Rows):
    """Makes the whole batch."""

    def __getitems__(self, indices: list[int]) -> Any:
        return self.x[indices], self.y[indices]


class Listed(Rows):
    """The same, as a list of as many parts as a batch of two has samples."""

    def __getitems__(self, indices: list[int]) -> Any:
        return [self.x[indices], self.y[indices]]


class Padded(Rows):
    """Samples as long as the longest of their batch."""

    def __getitems__(self, indices: list[int]) -> Any:
        return list(pad_sequence([torch.full((i + 1,), i) for i in indices], batch_first=True))


class Each(Rows):
    """One by one, which parts give as well."""

    def __getitems__(self, indices: list[int]) -> Any:
        return [self[index] for index in indices]


def as_it_is(batch: Any) -> Any:
    return batch


@pytest.mark.parametrize("batch_size", [1, 2, 5])
@pytest.mark.parametrize("kind", [Rows, Whole, Listed, Padded, Each])
def test_batches_are_those_of_the_dataloader(kind: Any, batch_size: int) -> None:
    loader = DataLoader(kind(), batch_size, collate_fn=as_it_is)
    wanted = [list(loader) for _ in range(2)]
    with hosted(Setup(feed=Feed(executor="threads", workers=3))) as host:
        assert same_bits([list(loader) for _ in range(2)], wanted)
        assert not host.broken


def test_parts_that_give_the_same_are_drawn_by_all_threads() -> None:
    asked: list[tuple[str, int]] = []

    class Noted(Each):
        def __getitems__(self, indices: list[int]) -> Any:
            asked.append((threading.current_thread().name[:13], len(indices)))
            return super().__getitems__(indices)

    threads = ByThreads(Noted(), 2)
    try:
        for _ in range(2):
            assert len(threads.items([1, 2, 3, 4])) == 4
    finally:
        threads.close()
    assert asked == [("MainThread", 4), *[("outpace-serve", 2)] * 4]


def test_a_part_of_rows_is_drawn_one_by_one() -> None:
    threads = ByThreads(Subset(Rows(), [3, 2, 1, 0]), 2)
    try:
        assert [int(y) for _, y in threads.items([0, 1, 2])] == [3, 2, 1]
        assert threads.divides is None
    finally:
        threads.close()
