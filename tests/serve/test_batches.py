from __future__ import annotations

import io
import random
import sys
from collections import UserDict, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset

from outpace.seams.setup import AS_IS
from outpace.serve.batches import CHECKED, Forgiving, Slices, Unlike, by_items, same_bits
from outpace.serve.feeds import make_feed

ROWS = torch.arange(40.0).reshape(20, 2)


class Made(Dataset[Any]):
    """Rows, and for a list of indices what a function makes of it."""

    def __init__(self, many: Callable[[list[int]], Any], one: Callable[[Any], Any]) -> None:
        self.many, self.one = many, one

    def __len__(self) -> int:
        return len(ROWS)

    def __getitem__(self, index: Any) -> Any:
        return self.many(index) if isinstance(index, list) else self.one(ROWS[index])


def as_dict(row: Any) -> dict[str, Any]:
    return {"x": row}


UNLIKE: dict[str, tuple[Made, str]] = {
    "an error": (Made(lambda i: 1 / 0, torch.clone), "raised ZeroDivisionError"),
    "other numbers": (Made(lambda i: ROWS[i] + 1, torch.clone), "differs"),
    "other keys": (Made(lambda i: {"y": ROWS[i]}, as_dict), "other keys"),
    "a list": (Made(lambda i: ROWS[i].tolist(), torch.clone), "not a tensor"),
    "other parts": (Made(lambda i: (ROWS[i],), lambda row: (row, row)), "another number"),
    "a class that is made in another way": (
        Made(lambda i: defaultdict(list, x=ROWS[i]), lambda row: defaultdict(list, x=row)),
        "raised TypeError",
    ),
}


@pytest.mark.parametrize("name", UNLIKE)
def test_a_slice_that_is_unlike_the_items_is_left_out(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    data, why = UNLIKE[name]
    loader = DataLoader(data, batch_size=4)
    with pytest.raises(Unlike, match=why):
        Slices(loader).fetch([1, 2])
    items = by_items(loader)
    fetch = Forgiving(Slices(loader).fetch, items, "slicing")
    for _ in range(CHECKED + 2):
        assert same_bits(fetch([3, 1]), items([3, 1]))
    assert capsys.readouterr().err.count("slicing is left out") == 1


class Gone(io.StringIO):
    """A stderr that nobody reads any more."""

    def write(self, text: str) -> int:
        raise BrokenPipeError


def test_batches_come_where_nobody_can_be_told_what_is_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "stderr", Gone())
    data, _ = UNLIKE["an error"]
    loader = DataLoader(data, batch_size=4)
    items = by_items(loader)
    fetch = Forgiving(Slices(loader).fetch, items, "slicing")
    for _ in range(2):
        assert same_bits(fetch([3, 1]), items([3, 1]))


def test_a_slice_that_fails_later_is_left_out_then() -> None:
    calls = []

    def many(indices: list[int]) -> Any:
        calls.append(indices)
        return ROWS[indices] if len(calls) <= CHECKED + 1 else 1 / 0

    loader = DataLoader(Made(many, torch.clone), batch_size=4)
    fetch = Forgiving(Slices(loader).fetch, by_items(loader), "slicing")
    for _ in range(CHECKED + 3):
        assert torch.equal(fetch([3, 1]), ROWS[[3, 1]])
    assert len(calls) == CHECKED + 2


def test_a_slice_that_differs_later_is_found_out() -> None:
    """Of all batches the first, the second, the fourth and so on are compared."""
    calls = []

    def many(indices: list[int]) -> Any:
        calls.append(indices)
        return ROWS[indices] + (len(calls) > 5)

    loader = DataLoader(Made(many, torch.clone), batch_size=4)
    fetch = Forgiving(Slices(loader).fetch, by_items(loader), "slicing")
    drawn = [fetch([3, 1]) for _ in range(12)]
    assert all(torch.equal(batch, ROWS[[3, 1]]) for batch in (*drawn[:5], *drawn[7:]))
    assert len(calls) == 8


class Strengthened(Dataset[torch.Tensor]):
    """A coin is thrown for each call, once the script says so: for a slice that is one for a whole batch."""

    flips = False

    def __len__(self) -> int:
        return len(ROWS)

    def __getitem__(self, index: Any) -> torch.Tensor:
        return -ROWS[index] if self.flips and random.random() < 0.5 else ROWS[index]


def test_a_data_set_that_turns_random_is_drawn_by_items_again(
    capsys: pytest.CaptureFixture[str],
) -> None:
    data = Strengthened()
    feed = make_feed(DataLoader(data, batch_size=8), replace(AS_IS.feed, fetch="slice"))
    plain = DataLoader(data, batch_size=8)
    for epoch, data.flips in enumerate((False, False, True, True)):
        random.seed(epoch)
        wanted = list(plain)
        random.seed(epoch)
        got = list(feed.epoch())
        assert all(map(torch.equal, got, wanted))
    assert capsys.readouterr().err.count("fetching by slice is left out") == 1


def test_a_tensor_set_is_sliced() -> None:
    fetch = Slices(DataLoader(TensorDataset(ROWS, ROWS[:, 0]), batch_size=4)).fetch
    for _ in range(CHECKED + 1):
        x, y = fetch([3, 1])
        assert torch.equal(x, ROWS[[3, 1]])
        assert y.tolist() == [6.0, 2.0]


@dataclass
class Held:
    """A sample of a class of the user's, which does not compare."""

    x: torch.Tensor


ALIKE: list[tuple[Any, Any, bool]] = [
    (torch.tensor([1.0, np.nan]), torch.tensor([1.0, np.nan]), True),
    (torch.ones(2), torch.ones(2, dtype=torch.float64), False),
    (np.zeros((2, 3)), np.zeros((2, 3)), True),
    (np.zeros((2, 3)), np.zeros((3, 2)), False),
    (np.zeros(2, np.int32), np.zeros(2, np.float32), False),
    ({"a": [1, (2,)]}, {"a": [1, (2,)]}, True),
    ([1, 2], [1, 2, 3], False),
    (1, True, False),
    (Held(torch.ones(2)), Held(torch.ones(2)), True),
    (Held(torch.ones(2)), Held(torch.zeros(2)), False),
    (UserDict(x=torch.ones(2)), UserDict(x=torch.ones(2)), True),
    (torch.eye(3).to_sparse(), torch.eye(3).to_sparse(), True),
    (torch.eye(3).to_sparse(), 2 * torch.eye(3).to_sparse(), False),
    (torch.eye(3).to_sparse_csr(), torch.eye(3).to_sparse_csr(), True),
    (torch.eye(3).to_sparse_csc(), torch.eye(3), False),
]


@pytest.mark.parametrize(("one", "other", "same"), ALIKE)
def test_bits_are_compared(one: Any, other: Any, same: bool) -> None:
    assert same_bits(one, other) == same


class Windows(Dataset[Any]):
    """Parts of rows, which a slice gives with gaps between them."""

    x = torch.arange(60.0).reshape(12, 5)

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: Any) -> Any:
        chunk = self.x[index]
        return chunk[..., :-1], chunk[..., 1:]


def test_sliced_batches_lie_in_memory_as_collated_ones() -> None:
    """Each of them, not only those that are compared: a script may call view()."""
    loader = DataLoader(Windows(), batch_size=4)
    slices = Slices(loader)
    for _ in range(CHECKED + 2):
        batch = slices.fetch([1, 5, 2, 7])
        assert all(part.is_contiguous() for part in batch)
        assert same_bits(batch, by_items(loader)([1, 5, 2, 7]))
        batch[1].view(-1)
    assert not slices.to_check


def test_a_dict_of_another_class_is_another_batch() -> None:
    assert not same_bits(defaultdict(list, x=ROWS), {"x": ROWS})
    assert same_bits({"x": ROWS}, {"x": ROWS.clone()})
