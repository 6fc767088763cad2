"""What trying a data set tells."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, RandomSampler, default_collate

from outpace.serve.probe import has_own_sampler, probe


@pytest.fixture(autouse=True)
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    assert torch.get_num_threads() == 2
    torch.set_num_threads(before)


class Numbers(Dataset[Any]):
    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: Any) -> Any:
        return torch.as_tensor(index) * 1.0


class Summed(Numbers):
    """As the last bits of a sum, tells how many threads it was taken on."""

    def __getitem__(self, index: Any) -> Any:
        return super().__getitem__(index) + torch.get_num_threads()


def normed(samples: list[Any]) -> Any:
    batch = default_collate(samples)
    return batch + torch.get_num_threads() * (len(batch) > 1)


@pytest.mark.parametrize(
    ("data", "collate", "same"),
    [
        (Numbers(), None, True),
        (Summed(), None, False),
        (Numbers(), normed, False),
        (Numbers(), default_collate, True),
    ],
)
def test_samples_that_one_thread_makes_otherwise_are_others_in_workers(
    data: Any, collate: Any, same: bool
) -> None:
    loader = DataLoader(data, batch_size=4, collate_fn=collate)
    found = probe(loader)
    assert (found.deterministic, found.random_streams) == (True, ())
    assert (found.same_on_one_thread, found.sliceable) == (same, collate is not normed)
    assert probe(loader, workers=False).same_on_one_thread is None
    torch.set_num_threads(1)
    assert probe(loader).same_on_one_thread
    torch.set_num_threads(2)


@pytest.mark.parametrize(("samples", "own"), [(None, False), (5, False), (30, True)])
def test_an_order_of_more_samples_than_there_are_is_made_on_the_way(
    samples: Any, own: bool
) -> None:
    order = RandomSampler(range(12), num_samples=samples)
    assert has_own_sampler(DataLoader(Numbers(), batch_size=4, sampler=order)) == own
