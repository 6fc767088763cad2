"""Batches that are given again are as they were, whatever the script has done with them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch

from outpace.seams.batch import scalable
from outpace.seams.recent import APART, KEPT, Recent


def seen(count: int = KEPT, change: Any = None) -> Recent:
    """Batches of a training, with which the script does something."""
    recent = Recent()
    for value in range(count):
        batch = {"x": torch.full((4, 2), float(value)), "labels": torch.arange(4)}
        recent.see(batch)
        if change is not None:
            change(batch)
    return recent


def test_they_are_given_in_turn() -> None:
    recent = seen()
    assert [int(recent.again()["x"][0, 0]) for _ in range(4)] == [1, 2, 0, 1]
    assert len(recent.again(0.5)["x"]) == 2
    assert len(recent.again(2.0)["labels"]) == 8


@pytest.mark.parametrize("epoch", [2, 4, 8, 16])
def test_they_are_not_all_an_epochs_last_one(epoch: int) -> None:
    """Which has fewer samples than the others."""
    recent, sizes = Recent(), []
    for turn in range(1, 40 * epoch + 1):
        recent.see(torch.zeros(2 if turn % epoch == 0 else 8, 3))
        sizes.append(len(recent.batches[-1]))
    assert sizes.count(2) / len(sizes) < 1.7 / epoch


def test_the_fullest_alone() -> None:
    recent = Recent()
    for size in (2, 8, 8):
        recent.see(torch.zeros(size, 3))
    assert recent.only_the_fullest() == 8
    assert {len(recent.again()) for _ in range(4)} == {8}
    assert {len(recent.again(2.0)) for _ in range(4)} == {16}


@pytest.mark.parametrize(
    "change",
    [
        lambda batch: batch.pop("labels"),
        lambda batch: batch["x"].unsqueeze_(1),
        lambda batch: batch.update(x=None),
        lambda batch: batch["x"].requires_grad_(),
    ],
)
def test_what_is_done_with_a_batch_is_not_done_to_the_next(change: Any) -> None:
    recent = seen(change=change)
    for _ in range(2 * KEPT):
        batch = recent.again()
        assert set(batch) == {"x", "labels"}
        assert batch["x"].shape == (4, 2)
        assert not batch["x"].requires_grad
        change(batch)


def test_numbers_that_are_changed_where_they_are_come_as_they_were() -> None:
    def change(batch: Any) -> None:
        batch["x"].add_(1.0).mul_(0.5)

    recent = seen(4 * APART[1], change)
    firsts = set()
    for _ in range(3 * KEPT):
        batch = recent.again()
        firsts.add(float(batch["x"][0, 0]))
        change(batch)
    assert firsts <= set(range(4 * APART[1]))


def test_a_batch_of_the_scripts_own_class_is_apart_too() -> None:
    @dataclass
    class Graph:
        x: torch.Tensor | None

    recent = Recent()
    recent.see(Graph(torch.ones(3)))
    for _ in range(2):
        batch = recent.again()
        assert batch.x is not None
        batch.x = None
    assert not recent.scalable


@pytest.mark.parametrize(
    ("batch", "whether"),
    [
        ((torch.ones(8, 3), torch.ones(8)), True),
        ({"x": torch.ones(8, 3), "scale": torch.tensor(2.0)}, True),
        ((torch.ones(9, 3), torch.ones(2, 20, dtype=torch.long), torch.ones(9)), False),
        (("a", "b"), False),
    ],
)
def test_a_part_is_taken_where_all_tensors_have_the_samples(batch: Any, whether: bool) -> None:
    assert scalable(batch) is whether
