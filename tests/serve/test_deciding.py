"""What one sample decides for itself, a slice would decide for a whole batch."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import FunctionType
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, Subset, TensorDataset, default_collate

from outpace.seams.setup import Feed
from outpace.serve.batches import same_bits
from outpace.serve.deciding import decided_by_samples
from outpace.serve.feeds import make_feed

MEAN = 0.5


class Rows(Dataset[Any]):
    """Rows, of which one late one has a gap."""

    def __init__(self, transform: Any = None) -> None:
        self.x = np.arange(160.0, dtype=np.float32).reshape(80, 2)
        self.x[70, 1] = np.nan
        self.bad = [3, 5]
        self.transform = transform
        self.file: Any = None

    def __len__(self) -> int:
        return len(self.x)

    def scaled(self, x: Any) -> Any:
        return (x - MEAN) / 2

    def cleaned(self, x: Any) -> Any:
        return x if np.isfinite(x).all() else np.zeros_like(x)


class Transforming(Rows):
    """As most data sets are written."""

    def __getitem__(self, index: Any) -> Any:
        if torch.is_tensor(index):
            index = index.tolist()
        if self.file is None:
            self.file = self.x
        x = self.scaled(self.file[index])
        if self.transform is not None:
            x = self.transform(x)
        return torch.as_tensor(x), torch.as_tensor(x if self.transform else -x)


class Cleaning(Rows):
    def __getitem__(self, index: Any) -> Any:
        x = self.x[index]
        if not np.isfinite(x).all():
            x = np.zeros_like(x)
        return torch.as_tensor(x)


class CleaningByAMethod(Rows):
    def __getitem__(self, index: Any) -> Any:
        return torch.as_tensor(self.cleaned(self.x[index]))


class CleaningInOneLine(Rows):
    def __getitem__(self, index: Any) -> Any:
        x = self.x[index]
        finite = np.isfinite(x)
        return torch.as_tensor(np.where(finite.all(), x, 0))


class Leaving(Rows):
    def __getitem__(self, index: Any) -> Any:
        return torch.as_tensor(self.x[index] * (index not in self.bad))


class Trying(Rows):
    def __getitem__(self, index: Any) -> Any:
        try:
            return torch.as_tensor(self.transform(self.x[index]))
        except ValueError:
            return torch.zeros(2)


class Remembering(Rows):
    def __getitem__(self, index: Any) -> Any:
        self.last = np.isnan(self.x[index]).sum()
        while self.last:
            return torch.zeros(2)
        return torch.as_tensor(self.x[index])


class Wrapping(Rows):
    def __getitem__(self, index: Any) -> Any:
        return self.transform[index]


class Plain(Rows):
    def __getitem__(self, index: Any) -> Any:
        return torch.as_tensor(self.x[index])


class PlainBelow(CleaningByAMethod):
    def __getitem__(self, index: Any) -> Any:
        return super().__getitem__(index) * 2


class Clipped:
    """A transform that looks at what it is given."""

    def __init__(self, top: float) -> None:
        self.top = top

    def __call__(self, x: Any) -> Any:
        return x / max(self.top, float(np.abs(x).max()))


class Normal:
    """One that does not."""

    def __init__(self, top: float | None) -> None:
        self.top = top

    def __call__(self, x: Any) -> Any:
        return x / self.top if self.top else x.max(axis=-1, keepdims=True)


def torch_sum(x: Any) -> Any:
    return torch.as_tensor(x).sum(-1)


def without_gaps(samples: list[Any]) -> Any:
    return default_collate([each for each in samples if each.isfinite().all()])


@pytest.mark.parametrize(
    "data",
    [
        Transforming(),
        Transforming(lambda x: x * 2),
        Transforming(Normal(2.0)),
        Plain(),
        Wrapping(Plain()),
        Subset(Plain(), [1, 2]),
        TensorDataset(torch.ones(4)),
        [1, 2, 3],
    ],
    ids=lambda data: type(data).__name__,
)
def test_what_is_the_same_for_every_sample(data: Any) -> None:
    assert decided_by_samples(data, default_collate, torch.stack) is None


@pytest.mark.parametrize(
    "data",
    [
        Cleaning(),
        CleaningByAMethod(),
        CleaningInOneLine(),
        Leaving(),
        Trying(lambda x: x),
        Remembering(),
        PlainBelow(),
        Wrapping(Cleaning()),
        Subset(Cleaning(), [1, 2]),
        Transforming(Clipped(1.0)),
        Transforming([Clipped(1.0)]),
        Transforming(functools.partial(Clipped(1.0))),
        Transforming(Clipped(1.0).__call__),
        Transforming(lambda x: x if x[0] > 0 else -x),
    ],
    ids=lambda data: type(data).__name__,
)
def test_what_a_sample_decides(data: Any) -> None:
    why = decided_by_samples(data)
    assert why is not None
    assert "test_deciding.py:" in why
    assert why.endswith("decides something for each sample by itself")


def test_what_a_collate_function_decides() -> None:
    assert decided_by_samples(Plain(), without_gaps) is not None


def test_a_function_without_a_source_may_decide_anything() -> None:
    code = torch_sum.__code__.replace(co_filename="/nowhere/made.py")
    why = decided_by_samples(Transforming(FunctionType(code, globals())))
    assert why == "the source of torch_sum in /nowhere/made.py cannot be read"


@pytest.mark.parametrize(
    ("data", "collate"), [(Cleaning(), None), (Plain(), without_gaps)], ids=["data", "collate"]
)
def test_a_late_sample_is_as_the_script_has_it(
    data: Any, collate: Callable[[list[Any]], Any] | None, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first batches, which are compared, have no gap: neither has one that is cut."""
    loader = DataLoader(data, batch_size=5, collate_fn=collate)
    feed = make_feed(loader, Feed(fetch="slice", executor="inline"))
    assert all(same_bits(*pair) for pair in zip(feed.epoch(), loader, strict=True))
    assert "decides something for each sample by itself" in capsys.readouterr().err
