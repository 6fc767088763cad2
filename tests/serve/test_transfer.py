from __future__ import annotations

from collections import UserDict
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import torch
from torch.nn.utils.rnn import pack_sequence

from outpace.serve.making import Made, bytes_of
from outpace.serve.transfer import _by_itself as by_itself
from outpace.serve.transfer import transferred


def batches(count: int, *, pin: bool = False) -> Iterator[Made]:
    for i in range(count):
        x = torch.full((1000, 100), float(i))
        yield Made({"x": x.pin_memory() if pin else x, "name": f"batch {i}"})


def test_left_where_they_are() -> None:
    given = list(batches(2))
    assert all(made is same for made, same in zip(transferred(given, None), given, strict=True))


def test_on_a_device_all_arrive_in_order() -> None:
    moved = list(transferred(batches(3), torch.device("meta")))
    assert [made.batch["x"].device.type for made in moved] == ["meta"] * 3
    assert [made.batch["name"] for made in moved] == ["batch 0", "batch 1", "batch 2"]


class Graph:
    """Moves itself, and knows of no second argument."""

    def __init__(self, nodes: torch.Tensor) -> None:
        self.nodes = nodes

    def to(self, device: torch.device) -> Graph:
        return Graph(self.nodes.to(device))


def test_what_tokenizers_give_and_objects_that_move_themselves_are_moved() -> None:
    given = UserDict(x=torch.ones(1000), of=[Graph(torch.ones(2))], name="a")
    assert bytes_of(given) > 4000
    (made,) = transferred([Made(given)], torch.device("meta"))
    assert type(made.batch) is UserDict
    assert made.batch["x"].is_meta
    assert made.batch["of"][0].nodes.is_meta
    assert made.batch["name"] == "a"
    assert not given["x"].is_meta


@pytest.mark.gpu
def test_objects_that_move_themselves_are_copied_ahead() -> None:
    made = [Made(UserDict(of=Graph(torch.full((1000,), float(i))))) for i in range(20)]
    found = [one.batch["of"].nodes for one in transferred(made, torch.device("cuda"))]
    assert [nodes.unique().tolist() for nodes in found] == [[float(i)] for i in range(20)]


@pytest.mark.gpu
def test_epochs_take_no_more_memory_than_the_first() -> None:
    device, taken = torch.device("cuda"), list[int]()
    for _ in range(10):
        for _ in transferred(batches(10, pin=True), device):
            pass
        taken.append(torch.cuda.memory_reserved(device))
    assert taken[-1] == taken[1]


@pytest.mark.gpu
def test_copied_ahead_they_are_whole_when_they_are_used() -> None:
    device = torch.device("cuda")
    made = (each.batch["x"] for each in transferred(batches(50, pin=True), device))
    sums = [(x @ x.T).mean() for x in made]
    assert [round(float(s) / 100) for s in sums] == [i * i for i in range(50)]


def test_packed_sequences_are_moved_as_a_whole() -> None:
    packed = pack_sequence([torch.arange(3.0), torch.arange(2.0)])
    (made,) = transferred([Made((packed, packed.data.shape))], torch.device("meta"))
    assert made.batch[0].data.device.type == "meta"
    assert made.batch[0].batch_sizes.tolist() == [2, 2, 1]
    assert made.batch[1] == (5,)


@pytest.mark.gpu
def test_packed_sequences_are_copied_ahead() -> None:
    made = [Made(pack_sequence([torch.full((3,), float(i))]).pin_memory()) for i in range(5)]
    found = [one.batch.data for one in transferred(made, torch.device("cuda"))]
    assert [data.tolist() for data in found] == [[float(i)] * 3 for i in range(5)]


@dataclass
class Pair:
    x: torch.Tensor
    name: str


def test_a_dataclass_goes_with_its_tensors() -> None:
    """It has no method for it itself."""
    pair = Pair(torch.ones(2), "first")
    moved = by_itself(pair, torch.device("meta"))
    assert (moved.x.device.type, moved.name, pair.x.device.type) == ("meta", "first", "cpu")
