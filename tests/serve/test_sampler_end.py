"""Orders of scripts that count their batches, or leave an epoch early, are those of the DataLoader itself."""

from __future__ import annotations

import functools
from itertools import islice
from typing import Any

import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, RandomSampler

from outpace.seams.setup import AS_IS, Feed, Setup
from tests.remedies.trainings import hosted

ROWS = [torch.tensor(i) for i in range(22)]
FEEDS = {
    "inline": Feed(executor="inline"),
    "ahead": Feed(executor="ahead", prefetch=3),
    "threads": Feed(executor="threads", workers=2),
    "processes": Feed(executor="processes", workers=1, prefetch=3),
    "lasting": Feed(executor="processes", workers=2, prefetch=2, persistent=True),
}
EPOCHS = {"counted": 0, "all": 1, "one less": -1, "three less": -3}
"""batches that are drawn besides as many as there are"""


@functools.cache
def orders(what: str, more: int, feed: Feed | None) -> list[Any]:
    """The indices of three epochs, and what the generator gives after each of them."""
    g = torch.Generator().manual_seed(3)
    found: list[Any] = []
    with hosted(AS_IS if feed is None else Setup(feed=feed)) as host:
        loader = LOADERS[what](g)
        for _ in range(3):
            batches = iter(loader)
            drawn = [batch.tolist() for batch in islice(batches, max(0, len(loader) + more))]
            found += [drawn, torch.randperm(50, generator=g).tolist()]
            del batches
        assert not host.broken
    return found


def given(batch_size: Any, *, drop_last: bool = False, workers: int = 0) -> Any:
    more = {"prefetch_factor": 1, "num_workers": workers} if workers else {}
    return lambda g: DataLoader(
        ROWS,  # type: ignore[arg-type]
        batch_size,
        shuffle=True,
        drop_last=drop_last,
        generator=g,
        **more,
    )


def by_batch_sampler(g: torch.Generator) -> DataLoader[Any]:
    order = RandomSampler(ROWS, generator=g)
    return DataLoader(ROWS, batch_sampler=BatchSampler(order, 4, drop_last=True))  # type: ignore[arg-type]


LOADERS = {
    "dropping the last": given(4, drop_last=True),
    "the last not full": given(4),
    "all full": given(11),
    "no batches": given(None),
    "larger than the data": given(30, drop_last=True),
    "a batch sampler": by_batch_sampler,
    "workers": given(4, workers=1),
    "workers, dropping the last": given(4, drop_last=True, workers=2),
}


@pytest.mark.parametrize("what", sorted(LOADERS))
@pytest.mark.parametrize(
    "how", [pytest.param(h, marks=[pytest.mark.slow] * (h == "processes")) for h in sorted(FEEDS)]
)
def test_the_next_order_is_that_of_the_dataloader(what: str, how: str) -> None:
    for name, more in EPOCHS.items():
        assert orders(what, more, FEEDS[how]) == orders(what, more, None), name
