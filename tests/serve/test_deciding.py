"""What one sample decides for itself, a slice would decide for a whole batch."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset, TensorDataset, default_collate

from outpace.seams.setup import Feed
from outpace.serve.batches import same_bits
from outpace.serve.deciding import decided_by_samples
from outpace.serve.feeds import make_feed
from tests.remedies.trainings import hosted

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
    """What is kept of one sample decides elsewhere."""

    def __getitem__(self, index: Any) -> Any:
        self.last = self.x[index]
        return self.kept()

    def kept(self) -> Any:
        return torch.as_tensor(self.last) * (-1 if self.last[0] > 100 else 1)


class Quiet(Transforming):
    @torch.no_grad()
    def __getitem__(self, index: Any) -> Any:
        return super().__getitem__(index)


class QuietlyCleaning(Rows):
    @torch.no_grad()
    def __getitem__(self, index: Any) -> Any:
        return torch.as_tensor(self.cleaned(self.x[index]))


class CleaningByAClass(Rows):
    def __getitem__(self, index: Any) -> Any:
        return torch.as_tensor(Tools.clean(self.x[index]))


@contextlib.contextmanager
def ignoring() -> Iterator[None]:
    try:
        yield
    except ValueError:
        print("left out")


class Ignoring(Rows):
    def __getitem__(self, index: Any) -> Any:
        x = self.x[index]
        with ignoring():
            x = np.asarray_chkfinite(x) * 2
        return torch.as_tensor(x)


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


class CleanModule(nn.Module):
    """One that is written as a model is."""

    def forward(self, x: Any) -> Any:
        x = torch.as_tensor(x)
        return x if torch.isfinite(x).all() else torch.zeros_like(x)


class Tools:
    @staticmethod
    def clean(x: Any) -> Any:
        return x if np.isfinite(x).all() else np.zeros_like(x)


class Modular(Rows):
    module = CleanModule()

    def __getitem__(self, index: Any) -> Any:
        return self.module(self.x[index])


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
        Quiet(lambda x: x * 2),
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
        PlainBelow(),
        Wrapping(Cleaning()),
        Subset(Cleaning(), [1, 2]),
        Transforming(Clipped(1.0)),
        Transforming([Clipped(1.0)]),
        Transforming(functools.partial(Clipped(1.0))),
        Transforming(Clipped(1.0).__call__),
        Transforming(CleanModule()),
        Transforming(nn.Sequential(nn.Identity(), CleanModule())),
        Transforming(Tools.clean),
        QuietlyCleaning(),
        CleaningByAClass(),
        Ignoring(),
        Transforming(lambda x: x if x[0] > 0 else -x),
    ],
    ids=lambda data: type(data).__name__,
)
def test_what_a_sample_decides(data: Any) -> None:
    why = decided_by_samples(data)
    assert why is not None
    assert "test_deciding.py:" in why
    assert why.endswith("decides something for each sample by itself")


def test_a_module_decides_while_the_seams_stand() -> None:
    """Ours in the place of its call is not the user's and names no forward."""
    with hosted():
        assert decided_by_samples(Transforming(CleanModule())) is not None


def test_what_is_kept_of_a_sample_may_decide() -> None:
    why = decided_by_samples(Remembering())
    assert why is not None
    assert why.endswith("keeps something of each sample in an attribute")


OF_ALL: list[Callable[[Any], Any]] = [
    lambda x: np.where(np.isnan(x), np.nanmean(x), x),
    lambda x: np.nan_to_num(x) * (np.isnan(x).sum() == 0),
    lambda x: x / torch.clamp(x.abs().amax(), min=1.0),
    lambda x: np.where(np.isfinite(x).all(axis=0), x, 0),
    lambda x: np.where(np.isfinite(x).all(0), x, 0),
    lambda x: np.where(np.all(np.isfinite(x), 0), x, 0),
    lambda x: np.where(np.allclose(x, 0), 1, x),
    lambda x: np.where(np.allclose(x, -1), 1, x),
    lambda x: x / max(x, -1),
    lambda x: x / np.linalg.norm(x),
    lambda x: x / np.linalg.norm(x, -1),
    lambda x: x.clip(None, np.quantile(x, 0.9)),
    lambda x: x / np.maximum.reduce(x, axis=(0, -1)),
    lambda x: x / x.reshape(-1).max(-1),
    lambda x: np.sort(x, axis=MEAN),
    lambda x: torch.softmax(x, dim=1),
    lambda x: np.where(x[0] < 0, 0, x),
    lambda x: np.where(x[-1] < 0, 0, x),
]


@pytest.mark.parametrize("function", OF_ALL)
def test_what_is_made_of_a_whole_sample(function: Callable[[Any], Any]) -> None:
    assert decided_by_samples(Transforming(function)) is not None


EACH: list[Callable[[Any], Any]] = [
    lambda x: (x - MEAN) / np.max([MEAN, 1]),
    lambda x: torch.as_tensor(x).float() / 255,
    lambda x: np.nan_to_num(x).clip(0, 1),
    lambda x: x / np.linalg.norm(x, axis=-1, keepdims=True),
    lambda x: x - x.mean(-1, keepdims=True),
    lambda x: np.sum(x, -1) + x.sum(axis=(-2, -1)),
    lambda x: torch.softmax(x, -1) + torch.nn.functional.softmax(x, dim=-1),
    lambda x: np.maximum.reduce(x, -1),
    lambda x: np.where(x[..., 0] < 0, 0, x[..., 1]),
    lambda x: {"x": x[0], "y": x[1]},
]


@pytest.mark.parametrize("function", EACH)
def test_what_is_made_along_the_last_axes(function: Callable[[Any], Any]) -> None:
    assert decided_by_samples(Transforming(function)) is None


def suppressed(x: Any) -> Any:
    with contextlib.suppress(np.linalg.LinAlgError):
        x = np.linalg.inv(x)
    return x


def left_at_last(x: Any) -> Any:
    found = x
    try:
        found = np.linalg.inv(x)
    finally:
        return found  # noqa: B012 - as scripts do


def closing(x: Any) -> Any:
    with contextlib.nullcontext():
        try:
            return x * 2
        finally:
            print("done")


def test_errors_that_are_taken() -> None:
    assert decided_by_samples(suppressed) is not None
    assert decided_by_samples(left_at_last) is not None
    assert decided_by_samples(closing) is None


def test_what_was_made_of_a_text_cannot_be_read() -> None:
    why = decided_by_samples(Transforming(eval("lambda x: x if x.any() else -x")))
    assert why == "the source of <lambda> in <string> cannot be read"


def test_what_a_collate_function_decides() -> None:
    assert decided_by_samples(Plain(), without_gaps) is not None


def test_a_function_without_a_source_may_decide_anything() -> None:
    code = torch_sum.__code__.replace(co_filename="/nowhere/made.py")
    why = decided_by_samples(Transforming(FunctionType(code, globals())))
    assert why == "the source of torch_sum in /nowhere/made.py cannot be read"


@pytest.mark.parametrize(
    ("data", "collate"),
    [
        (Cleaning(), None),
        (Plain(), without_gaps),
        (CleaningByAClass(), None),
        (QuietlyCleaning(), None),
        (Ignoring(), None),
        (Modular(), None),
    ],
)
def test_a_late_sample_is_as_the_script_has_it(
    data: Any, collate: Callable[[list[Any]], Any] | None, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first batches, which are compared, have no gap: neither has one that is cut."""
    loader = DataLoader(data, batch_size=5, collate_fn=collate)
    with hosted():
        wanted = list(loader)
        feed = make_feed(loader, Feed(fetch="slice", executor="inline"))
        assert all(same_bits(*pair) for pair in zip(feed.epoch(), wanted, strict=True))
    assert "decides something for each sample by itself" in capsys.readouterr().err
