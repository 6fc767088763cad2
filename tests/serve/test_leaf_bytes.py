"""What a batch is taken to take, so that no more of them are made ahead than memory is given for."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset

from outpace.serve import leaf_bytes as module
from outpace.serve.leaf_bytes import LOOKED_THROUGH, OF_EACH, leaf_bytes
from outpace.serve.making import bytes_of

PIXELS = torch.zeros(1000)


@dataclasses.dataclass
class Record:
    pixels: torch.Tensor
    label: int


@dataclasses.dataclass(slots=True)
class Slotted:
    pixels: torch.Tensor
    label: int


class Graph:
    """As packages of graphs have it: what holds the tensors knows whose it is."""

    def __init__(self) -> None:
        self.store = SimpleNamespace(mapping={"x": PIXELS, "again": PIXELS}, parent=self)
        self.classes = (torch.nn.Linear(1000, 1000), TensorDataset(PIXELS), len, Record)


def sparse(layout: torch.layout) -> torch.Tensor:
    return torch.eye(100).to_sparse(layout=layout)


@pytest.mark.parametrize(
    ("batch", "wanted"),
    [
        (Record(PIXELS, 3), 4000),
        (Slotted(PIXELS, 3), 4000),
        ({"a": [Record(PIXELS, 3), Record(PIXELS + 1, 4)]}, 8000),
        (Graph(), 4000),
        (SimpleNamespace(a=np.zeros(50), text="abc", several=[b"de"]), 405),
        (sparse(torch.sparse_coo), 100 * (2 * 8 + 4)),
        (sparse(torch.sparse_csr), 101 * 8 + 100 * (8 + 4)),
        (sparse(torch.sparse_csc), 101 * 8 + 100 * (8 + 4)),
        ([torch.zeros(3), np.zeros(2), "ab", 1, 2.0, None, np.float32(1)], 12 + 16 + 2 + 4 * 8),
        ([object(), SimpleNamespace()], 16),
    ],
    ids=[
        "record",
        "slots",
        "several",
        "graph",
        "texts",
        "sparse",
        "rows",
        "columns",
        "plain",
        "nothing",
    ],
)
def test_bytes_of_a_batch(batch: Any, wanted: int) -> None:
    assert bytes_of(batch) == wanted


def test_an_object_is_not_looked_through_for_ever() -> None:
    first = last = SimpleNamespace()
    for _ in range(100_000):
        last.following = last = SimpleNamespace(pixels=PIXELS[:1])
    last.pixels = PIXELS
    assert 1000 < bytes_of(first) < 4000


def test_what_objects_share_is_counted_once() -> None:
    records = [SimpleNamespace(pixels=PIXELS + i, vocabulary=[PIXELS]) for i in range(512)]
    assert leaf_bytes(*records) == 513 * 4000
    assert leaf_bytes(PIXELS, *records) == 513 * 4000
    assert leaf_bytes(*[Record(PIXELS, 3)] * 8, 1) == 4000 + 8


def test_what_objects_share_is_looked_through_once() -> None:
    words: list[Any] = [[str(i) * 9 for i in range(900)] for _ in range(900)]
    records = [SimpleNamespace(x=PIXELS + i, words=words) for i in range(64)]
    found = leaf_bytes(*records)
    assert 64 * 4000 < found < 64 * 4000 + 40 * (LOOKED_THROUGH + 64 * OF_EACH)


def test_a_batch_of_many_objects_is_counted_whole() -> None:
    records = [Record(PIXELS + i, i) for i in range(3 * LOOKED_THROUGH)]
    assert leaf_bytes(*records) == 3 * LOOKED_THROUGH * 4000


def test_what_is_written_to_meanwhile_does_not_stop_a_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    words: dict[int, Any] = {i: PIXELS + i for i in range(10)}
    count = module._of_counted

    def counted(thing: Any) -> int:
        if thing is words[0]:
            words[len(words)] = None
        return count(thing)

    monkeypatch.setattr(module, "_of_counted", counted)
    with pytest.raises(RuntimeError):
        [counted(word) for word in words.values()]
    assert leaf_bytes(SimpleNamespace(words=words), Record(PIXELS, 1)) == 2 * 4000
