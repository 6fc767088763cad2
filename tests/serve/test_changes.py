"""A data set that has changed is told from one that has not."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Subset

from outpace.serve.changes import state_of
from outpace.serve.loader import Loader


class Transform:
    strength = 0.0

    def __init__(self) -> None:
        self.on = True


class Data:
    epoch = 0

    def __init__(self) -> None:
        self.table, self.array = torch.zeros(3), np.zeros(3)
        self.transforms = [Transform(), Transform()]

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Any:
        return torch.tensor(100.0 * self.epoch + index)


def set_strength(data: Data) -> None:
    data.transforms[1].strength = 0.5


@pytest.mark.parametrize(
    "change",
    [
        lambda data: setattr(data, "epoch", 1),
        lambda data: setattr(data.transforms[0], "on", False),
        set_strength,
        lambda data: data.transforms.pop(),
        lambda data: data.table.add_(1.0),
        lambda data: setattr(data, "array", np.ones(3)),
    ],
)
def test_a_change_is_seen(change: Any) -> None:
    data = Data()
    of: Any = Subset(data, [0, 1])  # type: ignore[arg-type]
    before = state_of(of)
    assert state_of(of) == before
    change(data)
    assert state_of(of) != before


def test_what_leads_back_to_itself_comes_to_an_end() -> None:
    data: Any = Data()
    data.itself = [data, {"again": data}]
    assert state_of(data) == state_of(data)


def test_a_loaders_processes_have_the_data_set_as_it_is() -> None:
    data = Data()
    loader = Loader(data, 4, executor="processes", workers=1, shuffle=False)
    try:
        for data.epoch in range(3):
            assert [float(batch[0]) for batch in loader] == [100.0 * data.epoch + i for i in (0, 4)]
    finally:
        loader.close()


class Rows(Data):
    def __init__(self) -> None:
        super().__init__()
        self.rows = [[[0] * 64] * 64] * 64
        self.transforms = [Transform()]


def test_a_large_source_hides_no_change() -> None:
    data, transform = Rows(), Transform()
    before = state_of(data, transform)
    transform.strength = 0.5
    changed = state_of(data, transform)
    assert changed != before
    data.transforms[0].on = False
    assert state_of(data, transform) != changed


class Scaled:
    def __init__(self) -> None:
        self.factor = 1.0

    def scale(self, sample: Any) -> Any:
        return self.factor * sample


def in_closure(scaled: Scaled) -> Any:
    return lambda sample: scaled.factor * sample


@pytest.mark.parametrize(
    "function",
    [
        lambda scaled: scaled.scale,
        lambda scaled: partial(Scaled.scale, scaled),
        lambda scaled: partial(np.multiply, out={"of": scaled}),
        in_closure,
    ],
    ids=["method", "argument", "keyword", "closure"],
)
def test_a_change_of_what_a_function_has_is_seen(function: Any) -> None:
    scaled = Scaled()
    transform = function(scaled)
    before = state_of(transform)
    assert state_of(transform) == before
    scaled.factor = 2.0
    assert state_of(transform) != before


def test_a_loaders_processes_have_collate_as_it_is() -> None:
    scaled = Scaled()

    def collate(samples: list[Any]) -> Any:
        return scaled.factor * torch.stack(samples)

    loader = Loader(Data(), 4, collate=collate, executor="processes", workers=1, shuffle=False)
    try:
        for scaled.factor in (1.0, 2.0):
            assert [float(batch[1]) for batch in loader] == [scaled.factor, 5 * scaled.factor]
    finally:
        loader.close()
