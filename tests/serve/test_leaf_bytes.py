"""What a batch is taken to take, so that no more of them are made ahead than memory is given for."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset

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
