"""Samples that are kept collated, one row each."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset

from outpace.seams.setup import Feed
from outpace.serve.batches import Unlike, same_bits
from outpace.serve.cache import SampleCache
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


class Named(dict[str, Any]):
    """A dict whose keys are attributes."""

    def __getattr__(self, name: str) -> Any:
        return self[name]


class OfNamed(Dataset[Any]):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Any:
        return Named(x=torch.ones(3) * index)


def test_samples_of_a_class_that_would_be_lost_are_not_kept() -> None:
    loader = DataLoader(OfNamed(), batch_size=4)
    assert type(next(iter(loader))) is Named
    with pytest.raises(Unlike, match="Named, which cannot be stacked"):
        SampleCache(loader, 1 << 20).fetch([0, 1, 2, 3])


class Gaps(Dataset[Any]):
    """Samples of which a few are missing."""

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> torch.Tensor | None:
        return None if index % 10 == 7 else torch.arange(4.0) + index


def without_gaps(samples: list[Any]) -> Any:
    return torch.stack([sample for sample in samples if sample is not None])


def test_what_cannot_be_collated_alone_is_drawn_as_the_script_does(
    capsys: pytest.CaptureFixture[str],
) -> None:
    loader = DataLoader(Gaps(), batch_size=5, collate_fn=without_gaps)
    feed = make_feed(loader, Feed(fetch="cache", executor="inline", cache_bytes=1 << 20))
    for _ in range(2):
        assert all(same_bits(*pair) for pair in zip(feed.epoch(), loader, strict=True))
    assert "is left out: sample 7 alone raised RuntimeError" in capsys.readouterr().err


def test_samples_that_are_elsewhere_than_in_memory_are_not_kept() -> None:
    loader = DataLoader(TensorDataset(torch.ones(8, 3, device="meta")), batch_size=4)
    with pytest.raises(Unlike, match="samples are on meta"):
        SampleCache(loader, 1 << 20).fetch([0, 1, 2, 3])
