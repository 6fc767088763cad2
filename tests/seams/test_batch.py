"""Batches of any nesting: every tensor is found and changed, and what was given stays as it is."""

from __future__ import annotations

from collections import OrderedDict, UserDict, namedtuple
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from tests.remedies.trainings import hosted
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from outpace.seams.batch import (
    batch_size,
    changed_within,
    first_tensor,
    map_tensors,
    scalable,
    scale_batch,
    tensors_in,
)
from outpace.tune.assemble import assemble

Pair = namedtuple("Pair", "x y")


@dataclass(frozen=True)
class Sampled:
    """A batch as many a script has it."""

    x: torch.Tensor
    labels: dict[str, torch.Tensor]
    names: tuple[str, ...] = ("a", "b", "c", "d")


class Own:
    """Another."""

    def __init__(self, x: torch.Tensor) -> None:
        self.name, self.x = "own", x


class Two(tuple[torch.Tensor, torch.Tensor]):
    """One that a script's collate function may give."""

    labels = property(lambda self: self[1])


class Slim(tuple[torch.Tensor, torch.Tensor]):
    """Another, without attributes."""

    __slots__ = ()


class Listed(list[torch.Tensor]):
    """Another."""


X, Y = torch.randn(4, 3), torch.arange(4)


@pytest.mark.parametrize(
    "batch",
    [
        *(X, (X, Y), [X, {"y": Y}], Pair(X, Y), {"x": X, "n": 3}, OrderedDict(x=X, y=[Y])),
        Sampled(X, {"y": Y}),
        UserDict(x=X, y=Y),  # as the tokenizers of transformers give
        *(Two((X, Y)), Slim((X, Y)), Listed([X, Y]), torch.max(X, 1)),
        {"x": X, "size": X.shape},
    ],
    ids=lambda batch: type(batch).__name__,
)
def test_what_is_given_stays(batch: Any) -> None:
    before = list(tensors_in(batch))
    doubled = map_tensors(batch, lambda tensor: tensor * 2)
    assert type(doubled) is type(batch)
    assert all(one is other for one, other in zip(tensors_in(batch), before, strict=True))
    assert all(torch.equal(d, 2 * b) for d, b in zip(tensors_in(doubled), before, strict=True))
    assert first_tensor(scale_batch(batch, 0.5)).shape[0] == 2  # type: ignore[union-attr]
    assert first_tensor(batch).shape[0] == 4  # type: ignore[union-attr]


def test_samples_of_an_object_are_counted() -> None:
    assert batch_size(Own(X)) == 4
    assert batch_size(nn.Linear(2, 3)) == 1


def boxes(count: int) -> dict[str, torch.Tensor]:
    return {"boxes": torch.zeros(count, 4), "labels": torch.zeros(count)}


PICTURE = torch.zeros(3, 8, 6)


@pytest.mark.parametrize(
    ("batch", "samples"),
    [
        (((PICTURE,) * 5, tuple(map(boxes, (1, 2, 1, 4, 2)))), 5),
        ([[X, X[:2]], [Y[:1], Y[:2]]], 2),
        (((X, X), Y), 4),
        (((X, X), (Y, Y)), 4),
        (((X, X),), 4),
        ([(PICTURE, boxes(1)), (PICTURE, boxes(2))], 3),
        (((),), 1),
    ],
    ids=["images", "sequences", "pairs", "pairs of pairs", "a pair", "not collated", "empty"],
)
def test_samples_that_are_listed_are_counted(batch: Any, samples: int) -> None:
    """Not the tensors of which each has a part of every sample."""
    assert batch_size(batch) == samples


@pytest.mark.parametrize("samples", [100, 65, 64, 40])
def test_a_rest_at_an_epochs_end_is_no_batch(samples: int) -> None:
    """Of an epoch of two batches, or of one."""
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    with hosted() as host:
        loader = DataLoader(TensorDataset(torch.randn(samples, 3)), batch_size=64)
        for _ in range(3):
            for (x,) in loader:
                model(x).square().mean().backward()
                optimizer.step()
            assert host.batch_size == min(samples, 64)


def test_a_dataclass_that_leads_back_is_gone_through_once() -> None:
    @dataclass
    class Node:
        x: torch.Tensor
        parent: Any = None

    root = Node(X)
    root.parent = Node(Y, root)
    assert list(tensors_in([root])) == [X]
    assert map_tensors(root, torch.Tensor.clone).parent is root.parent


def test_a_part_of_the_samples_is_taken_where_no_class_has_any() -> None:
    assert scalable((X, {"y": Y}))
    assert not scalable(Sampled(X, {"y": Y}))
    assert not scalable((Sampled(X, {"y": Y}), Y))
    assert not scalable((X, Y[:2]))


def test_a_watched_model_gets_its_batch() -> None:
    """A dictionary of another class, which a DataLoader keeps when it collates."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(3, 2)

        def forward(self, batch: OrderedDict[str, torch.Tensor]) -> torch.Tensor:
            return self.inner(batch["x"])

    host, model, batch = assemble(switching=True), Model(), OrderedDict(x=X, y=Y)
    host.install()
    try:
        out = model(batch)
    finally:
        host.remove()
    assert out.shape == (4, 2)
    assert batch["x"] is X
    assert batch["y"] is Y


@pytest.mark.parametrize("kind", [dict, OrderedDict, UserDict])
def test_what_is_called_writes_to_what_it_is_given(kind: Any) -> None:
    """Its tensors are others meanwhile; those that it puts there stay, and so do the ones it replaces."""
    state, kept, pair = kind(x=X, y=Y, old=X), [X, (X, Y), "name"], Pair(X, 3)
    new = torch.zeros(1)
    with changed_within(([state, kept], pair), lambda t: t * 2 if t is X else t) as (held, doubled):
        assert held[0] is state
        assert held[1] is kept
        assert torch.equal(state["x"], 2 * X)
        assert state["y"] is Y
        assert torch.equal(kept[1][0], 2 * X)  # type: ignore[index]
        assert type(doubled) is Pair
        kept.append(new)
        kept.pop(0)
        state["new"], state["old"] = new, new
    for name, wanted in {"x": X, "y": Y, "new": new, "old": new}.items():
        assert state[name] is wanted, name
    assert kept[0][0] is X  # type: ignore[index]
    assert kept[1] == "name"
    assert kept[2] is new


def test_arguments_are_as_they_were_after_an_error() -> None:
    kept = [X]
    with pytest.raises(KeyError), changed_within((kept,), lambda tensor: tensor * 2):
        raise KeyError
    assert kept[0] is X


def test_a_tuple_of_the_scripts_own_class_stays_one_within_a_call() -> None:
    with changed_within(((Two((X, Y)),), {}), lambda tensor: tensor * 2) as ((batch,), _):
        assert type(batch) is Two
        assert torch.equal(batch.labels, 2 * Y)


def test_a_size_stays_one() -> None:
    changed = map_tensors({"x": X, "size": X.shape}, lambda tensor: tensor * 2)
    assert changed["size"] is not None
    assert type(changed["size"]) is torch.Size


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_samples_of_a_nested_tensor_are_counted_and_not_cut_out() -> None:
    nested = torch.nested.nested_tensor([X, X[:2]])
    assert batch_size(nested) == 2
    assert not scalable(nested)


def test_packed_sequences_and_graphs_are_counted_themselves() -> None:
    packed = nn.utils.rnn.pack_sequence([torch.ones(5, 2), torch.ones(3, 2), torch.ones(1, 2)])
    assert batch_size(packed) == 3
    assert batch_size((packed, torch.zeros(3))) == 3

    class Graphs:
        def __init__(self) -> None:
            self.x, self.y = torch.ones(17, 4), torch.zeros(2)

        @property
        def num_graphs(self) -> int:
            return 2

    assert batch_size(Graphs()) == 2
    assert batch_size([Graphs(), torch.zeros(2)]) == 2


def test_sequences_whose_samples_lie_along_the_second_dimension() -> None:
    lengths = torch.tensor([9, 7, 4])
    inputs, targets = torch.zeros(9, 3, 5), torch.zeros(3, 6)
    assert batch_size(((inputs, lengths), (targets, lengths))) == 3
    assert batch_size((torch.zeros(9, 3, 5), torch.zeros(9))) == 9
    boxes, labels = torch.zeros(12, 4), torch.zeros(12)
    assert batch_size((torch.zeros(4, 3, 8, 8), boxes, labels)) == 4
