"""Samples that are kept collated, one row each."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from outpace.seams.setup import Feed
from outpace.serve.batches import same_bits
from outpace.serve.feeds import make_feed


class Windows(Dataset[Any]):
    """Recordings of one window each, but for a later one."""

    def __init__(self, of_the_later: int) -> None:
        self.of_the_later = of_the_later

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> torch.Tensor:
        count = self.of_the_later if index == 30 else 1
        return torch.arange(4.0).expand(count, 4) + index + torch.arange(float(count))[:, None]


@pytest.mark.parametrize("windows", [0, 2, 3])
def test_a_later_sample_that_is_not_one_row_is_not_kept(windows: int) -> None:
    loader = DataLoader(Windows(windows), batch_size=5, collate_fn=torch.cat)
    feed = make_feed(loader, Feed(fetch="cache", executor="inline", cache_bytes=1 << 20))
    for _ in range(2):
        assert all(same_bits(*pair) for pair in zip(feed.epoch(), loader, strict=True))
