from __future__ import annotations

import math
import pickle
from collections import OrderedDict, UserDict
from contextlib import closing
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from outpace.errors import DataError
from outpace.serve.batches import same_bits
from outpace.serve.crossing import (
    SMALL,
    VIEWED,
    Packer,
    Parcel,
    Placed,
    check_picklable,
    crossing_s,
    unpacked,
)
from outpace.serve.loader import Loader
from outpace.serve.places import Places


class Pair(NamedTuple):
    one: Any
    other: Any


def tensors(parcel: Parcel) -> int:
    return sum(isinstance(one, torch.Tensor) for one in (parcel.joined, *parcel.rest))


def made(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    return torch.arange(float(np.prod(shape, dtype=int))).reshape(shape).to(dtype)


BATCHES: dict[str, Any] = {
    "one": torch.arange(5),
    "pair": (torch.ones(3, 2), torch.arange(3)),
    "named": Pair(torch.ones(2), {"a": [torch.zeros(1), torch.tensor(7)]}),
    "every type": {str(dtype): made(dtype, 3, 2) for dtype in VIEWED},
    "odd sizes": [made(torch.uint8, 3), made(torch.float64, 2), made(torch.bool, 1)],
    "empty": (torch.empty(0, 4), torch.ones(2), torch.empty(0)),
    "large": {"x": torch.ones(SMALL), "y": torch.arange(4)},
    "names": {"name": ["a", "b"], "x": torch.ones(2), "n": 3, "none": None, "a": np.ones(2)},
    "mixed": ("name", torch.ones(2), [1, torch.ones(1)]),
    "views": {"x": torch.arange(12).reshape(3, 4).T, "y": torch.arange(12)[3:7]},
    "nothing": {},
}


@pytest.mark.parametrize("by_pipe", [False, True])
@pytest.mark.parametrize("name", BATCHES)
def test_a_batch_arrives_as_it_was(name: str, by_pipe: bool) -> None:
    batch = BATCHES[name]
    for own in (True, False):
        sent = pickle.loads(pickle.dumps(Packer(by_pipe=by_pipe)(batch)))
        back = unpacked(sent, own=own)
        assert same_bits(back, batch)
        if isinstance(batch, Pair):
            assert type(back) is Pair


@pytest.mark.parametrize("name", BATCHES)
def test_a_batch_arrives_by_a_place_as_it_was(name: str) -> None:
    batch = {"it": BATCHES[name], "large": torch.arange(SMALL)}
    places = Places(1, 1, 16 * SMALL)
    parcel = Packer(places=places)(batch)
    assert isinstance(parcel.joined, Placed)
    back = unpacked(pickle.loads(pickle.dumps(parcel)), places=places)
    assert same_bits(back, batch)
    # What is small has memory of its own: the place is not kept for it.
    places.memory.zero_()
    assert same_bits(back["it"], batch["it"]) or name == "large"
    assert not back["large"].any()


@pytest.mark.parametrize("size", [4 * SMALL, 6 * SMALL])
def test_what_does_not_fit_a_place_goes_as_ever(size: int) -> None:
    places = Places(1, 1, size)
    for batch in (torch.arange(SMALL), torch.arange(4)):
        sent = Packer(places=places)(batch)
        assert not isinstance(sent.joined, Placed)
        assert same_bits(unpacked(sent), batch)
    assert not places.used.any()
    assert not places.memory.any()


def test_what_cannot_lie_with_others_goes_by_itself() -> None:
    gradient = torch.ones(2, requires_grad=True)
    batch = {"gradient": gradient, "sparse": torch.eye(2).to_sparse(), "x": torch.ones(2)}
    for by_pipe in (False, True):
        parcel = Packer(by_pipe=by_pipe)(batch)
        assert [id(one) for one in parcel.rest] == [id(gradient), id(batch["sparse"])]
        assert unpacked(parcel)["gradient"] is gradient


def test_a_class_of_ones_own_is_kept() -> None:
    batch = OrderedDict(x=torch.ones(2))
    assert type(unpacked(Packer()(batch))) is OrderedDict


class Boxes(list[torch.Tensor]):
    """A list that knows more than its parts."""

    def __init__(self, parts: Any, size: Any = None) -> None:
        super().__init__(parts)
        self.size = size


def test_what_a_list_knows_besides_its_parts_is_kept() -> None:
    boxes = unpacked(Packer()({"x": torch.ones(2), "boxes": Boxes([torch.ones(4)], (3, 5))}))[
        "boxes"
    ]
    assert type(boxes) is Boxes
    assert boxes.size == (3, 5)
    assert torch.equal(boxes[0], torch.ones(4))


def test_many_small_tensors_are_one() -> None:
    batch = {f"c{i}": torch.full((1024,), float(i)) for i in range(100)}
    parcel = Packer()(batch)
    assert tensors(parcel) == 1
    back = unpacked(parcel)
    assert all(back[name].untyped_storage().nbytes() == 4096 for name in batch)
    few = Packer()({"x": torch.ones(4), "y": torch.ones(5)})
    assert tensors(few) == 0
    apart = [torch.ones(4, requires_grad=True)] * 100
    assert crossing_s(batch) < crossing_s(apart) / 10


def test_the_layout_is_written_once_for_batches_that_are_alike() -> None:
    pack = Packer()
    one, two = (pack({"x": torch.rand(4), "y": torch.arange(4)}) for _ in range(2))
    assert one.layout is two.layout
    last = pack({"x": torch.rand(3), "y": torch.arange(3)})
    assert unpacked(last)["x"].shape == (3,)
    assert unpacked(two)["x"].shape == (4,)
    assert unpacked(pack((torch.ones(1), torch.ones(1))))[0].tolist() == [1]


def test_with_all_tensors_in_the_pipe_no_shared_memory_is_taken() -> None:
    parcel = Packer(by_pipe=True)({"x": torch.ones(2 * SMALL), "y": torch.ones(3, 4).T})
    assert tensors(parcel) == 0


class Wide:
    """A batch with more columns than there may be open files."""

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> Parcel:
        return Packer()({f"c{i}": torch.full((2000,), float(i + index)) for i in range(300)})


def test_through_a_process() -> None:
    parcels = DataLoader(Wide(), batch_size=None, num_workers=1, collate_fn=lambda x: x)  # type: ignore[arg-type]
    for index, parcel in enumerate(parcels):
        back = unpacked(parcel)
        assert [column[-1].item() for column in back.values()] == [i + index for i in range(300)]


def test_what_stays_in_a_place_begins_as_memory_of_torchs_own_does() -> None:
    """A matrix product of the same numbers may end in other bits where they begin elsewhere."""
    batch = {"mask": torch.ones(SMALL + 3, dtype=torch.uint8), "x": torch.rand(SMALL // 4 + 1)}
    batch |= {"y": torch.rand(SMALL // 4 + 1), "late": torch.ones(SMALL + 1, dtype=torch.bool)}
    places = Places(1, 1, 8 * SMALL)
    found = unpacked(Packer(places=places)(batch), places=places)
    for name, tensor in batch.items():
        assert torch.equal(found[name], tensor)
        assert found[name].data_ptr() % 64 == 0


def test_what_cannot_be_pickled_does_not_cross() -> None:
    """Nor is it waited for: a queue would lose it."""

    class Here(NamedTuple):
        x: torch.Tensor

    lines = [torch.ones(2)] * 8

    def local(samples: list[torch.Tensor]) -> Here:
        return Here(torch.stack(samples))

    def named(samples: list[torch.Tensor]) -> dict[str, Any]:
        return {"x": torch.stack(samples), "how": lambda: 0}

    for collate in (local, named):
        assert crossing_s(collate(lines)) == math.inf
        with closing(Loader(lines, 4, collate=collate)) as loader:
            assert len(list(loader)) == 2
        with (
            closing(Loader(lines, 4, collate=collate, executor="processes", workers=1)) as loader,
            pytest.raises(DataError, match="cannot be handed over by a process"),
        ):
            list(loader)


def test_what_fits_no_shared_memory_goes_through_the_pipe() -> None:
    large, small = {"x": torch.ones(SMALL), "y": torch.arange(4)}, {"x": torch.ones(2)}
    packer = Packer(fits=lambda size: size < SMALL)
    assert tensors(packer(small)) == tensors(packer(large)) == 0
    assert tensors(Packer()(large)) == 1
    for batch in (large, small, large):
        assert same_bits(unpacked(pickle.loads(pickle.dumps(packer(batch)))), batch)


@dataclass
class Scene:
    image: torch.Tensor
    names: list[str]
    again: Any = None


class Attributes(dict[str, Any]):
    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


def objects() -> dict[str, Any]:
    large = torch.arange(SMALL)
    return {
        "scene": Scene(large, ["a"], large),
        "tokens": UserDict(x=large, mask=torch.ones(3)),
        "ordered": OrderedDict(x=large.clone()),
        "attributes": Attributes(x=torch.ones(2, 3).T, of=[Scene(torch.zeros(2), [])]),
    }


@pytest.mark.parametrize(("how", "apart"), [("", 4), ("by pipe", 0), ("by a place", 1)])
def test_objects_of_any_class_arrive_with_their_tensors_beside_them(how: str, apart: int) -> None:
    sent = objects()
    places = Places(1, 1, 64 * SMALL) if how == "by a place" else None
    parcel = Packer(places=places, by_pipe=how == "by pipe")(sent)
    assert tensors(parcel) == apart
    back = unpacked(pickle.loads(pickle.dumps(parcel)), places=places)
    assert {name: type(one) for name, one in back.items()} == {
        name: type(one) for name, one in sent.items()
    }
    assert back["scene"].image is back["scene"].again
    assert same_bits(dict(back["tokens"]), dict(sent["tokens"]))
    assert same_bits(dict(back["ordered"]), dict(sent["ordered"]))
    assert same_bits(vars(back["scene"]), vars(sent["scene"]))
    assert back["attributes"].x.tolist() == torch.ones(3, 2).tolist()
    assert [type(scene) for scene in back["attributes"].of] == [Scene]
    assert same_bits(*(vars(each["attributes"].of[0]) for each in (back, sent)))


def test_to_look_at_a_batch_puts_none_of_it_into_shared_memory() -> None:
    """What is put there and not sent stays open in the worker."""
    batch = objects()
    check_picklable(batch)
    assert crossing_s(batch) < math.inf
    assert not batch["scene"].image.is_shared()
    assert not batch["ordered"]["x"].is_shared()


@pytest.mark.parametrize("inside", [lambda batch: batch, lambda batch: UserDict(x=batch)])
def test_a_batch_that_gradients_go_back_through_is_told_of(inside: Any) -> None:
    weights = torch.nn.Parameter(torch.ones(2))

    def collate(samples: list[torch.Tensor]) -> Any:
        return inside(torch.stack(samples) * weights)

    lines = [torch.ones(2)] * 8
    assert crossing_s(collate(lines)) == math.inf  # else it would be waited for without an end
    with (
        closing(Loader(lines, 4, collate=collate, executor="processes", workers=1)) as loader,
        pytest.raises(DataError, match="gradients go back through a tensor") as told,
    ):
        list(loader)
    assert "no_grad" in str(told.value.hint)
    with (
        torch.no_grad(),
        closing(Loader(lines, 4, collate=collate, executor="processes", workers=1)) as loader,
    ):
        assert len(list(loader)) == 2


def test_what_cannot_be_handed_over_is_told_each_time() -> None:
    """Also of a batch that is like one that could not be before."""

    class Here(NamedTuple):
        x: torch.Tensor

    pack = Packer()
    for _ in range(2):
        with pytest.raises((AttributeError, pickle.PicklingError)):
            pack(Here(torch.ones(2)))


@pytest.mark.parametrize("by_pipe", [False, True])
def test_a_batch_lies_in_memory_as_it_did(by_pipe: bool) -> None:
    images = torch.arange(240.0).reshape(2, 3, 5, 8)
    batch = {
        "last": images.contiguous(memory_format=torch.channels_last),
        "turned": images.transpose(0, 3),
        "plain": images,
        "half": images.bfloat16().contiguous(memory_format=torch.channels_last),
    }
    back = unpacked(pickle.loads(pickle.dumps(Packer(by_pipe=by_pipe)(batch))))
    assert same_bits(back, batch)
    for name, tensor in batch.items():
        assert back[name].stride() == tensor.stride(), name
