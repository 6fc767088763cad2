"""Samples that are kept collated, one row each."""

from __future__ import annotations

import itertools
from functools import partial
from typing import Any

import numpy as np
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


class Tall(Dataset[Any]):
    """Of whose array it would take too long to tell a change, if ``large``; counts what is drawn."""

    def __init__(self, *, large: bool) -> None:
        # Never touched: it takes no memory.
        self.array = np.empty(1 << 30 if large else 1, np.uint8)
        self.drawn = itertools.count()

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> torch.Tensor:
        next(self.drawn)
        return torch.full((3,), float(index))


class Collate:
    def __init__(self, *, train: bool) -> None:
        self.train = train

    def __call__(self, samples: list[Any]) -> torch.Tensor:
        return scaled(samples, by=2.0 if self.train else 1.0)

    def method(self, samples: list[Any]) -> torch.Tensor:
        return self(samples)


def scaled(samples: list[Any], by: float) -> torch.Tensor:
    return torch.stack(samples) * by


def by_lambda(*, train: bool) -> Any:
    return lambda samples: scaled(samples, by=2.0 if train else 1.0)


PAIRS: dict[str, Any] = {
    "objects": lambda train: Collate(train=train),
    "partials": lambda train: partial(scaled, by=2.0 if train else 1.0),
    "lambdas": lambda train: by_lambda(train=train),
    "methods": lambda train: Collate(train=train).method,
}


def cached(loader: DataLoader[Any]) -> list[Any]:
    feed = make_feed(loader, Feed(fetch="cache", executor="inline", cache_bytes=1 << 20))
    return [batch for _ in range(3) for batch in feed.epoch()]


@pytest.mark.parametrize("large", [False, True], ids=["told", "untold"])
@pytest.mark.parametrize("pair", PAIRS)
def test_collate_functions_of_one_name_share_nothing(
    pair: str, large: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    data = Tall(large=large)
    valid, train = (
        DataLoader(data, batch_size=4, collate_fn=PAIRS[pair](train)) for train in (False, True)
    )
    for loader in (valid, train, valid):
        assert all(same_bits(*pair) for pair in zip(cached(loader), 3 * list(loader), strict=True))
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("how", ["function", "method"])
def test_loaders_with_one_collate_function_share_what_is_kept(how: str) -> None:
    data, collate = Tall(large=False), Collate(train=True)
    for drawn in (48, 36):  # twice in the first epoch, and again to be compared
        collated = collate.method if how == "method" else collate
        before = next(data.drawn)
        cached(DataLoader(data, batch_size=12, collate_fn=collated))
        assert next(data.drawn) - before - 1 == drawn


def test_nothing_is_kept_for_collate_functions_that_are_made_for_each_loader(
    capsys: pytest.CaptureFixture[str],
) -> None:
    data = Tall(large=False)
    for _ in range(2):
        loader = DataLoader(data, batch_size=4, collate_fn=by_lambda(train=True))
        assert all(same_bits(*pair) for pair in zip(cached(loader), 3 * list(loader), strict=True))
        del loader
    assert "each loader has a collate function of its own" in capsys.readouterr().err


def test_rows_that_were_found_to_differ_are_not_kept() -> None:
    calls = itertools.count()

    def other_each_time(samples: list[Any]) -> torch.Tensor:
        return torch.stack(samples) + float(next(calls))

    cache = SampleCache(
        DataLoader(Tall(large=False), batch_size=4, collate_fn=other_each_time), 1 << 20
    )
    with pytest.raises(Unlike, match="differ from those drawn"):
        cache.fetch([0, 1, 2, 3])
    assert not cache.samples.have.any()


def test_a_sampler_that_counts_from_the_end_has_its_samples() -> None:
    loader = DataLoader(Windows(1), batch_size=4, sampler=[-1, 3, -40, 7])
    feed = make_feed(loader, Feed(fetch="cache", executor="inline", cache_bytes=1 << 20))
    for _ in range(2):
        assert all(same_bits(*pair) for pair in zip(feed.epoch(), loader, strict=True))


def channels_last(samples: list[torch.Tensor]) -> torch.Tensor:
    images = torch.stack([sample.expand(3, 4, 4) for sample in samples])
    return images.contiguous(memory_format=torch.channels_last)


def test_batches_that_are_laid_out_otherwise_stay_so() -> None:
    """What is computed of them may be another last bit, and take another time."""
    loader = DataLoader(Windows(1), batch_size=5, collate_fn=channels_last)
    feed = make_feed(loader, Feed(fetch="cache", executor="inline", cache_bytes=1 << 20))
    for _ in range(2):
        for batch in feed.epoch():
            assert batch.is_contiguous(memory_format=torch.channels_last)


class Split:
    """Equal to one of another split, as a dataclass may be that compares its files alone."""

    def __init__(self, first: int) -> None:
        self.first = first

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> float:
        return float(self.first + index)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Split)

    def __hash__(self) -> int:
        return 0


def test_data_sets_that_are_equal_have_samples_of_their_own() -> None:
    train, valid = (DataLoader(Split(first), batch_size=4) for first in (0, 100))  # type: ignore[var-annotated,arg-type]
    for loader in (train, valid):
        cache = SampleCache(loader, 1 << 20)
        for _ in range(2):
            assert all(same_bits(cache.fetch(range(4)), batch) for batch in [next(iter(loader))])
