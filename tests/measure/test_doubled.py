"""Operators in float64 of a model that is not."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch
from torch import nn

from outpace.measure.doubled import MOST_BYTES, Doubled, in_float32

ATEN = torch.ops.aten
WIDE = torch.rand(64, 64, dtype=torch.float64)


def seen(operator: Any, *args: Any, **kwargs: Any) -> Doubled:
    """What is kept of an operator that took a second."""
    doubled = Doubled(None)
    doubled.see(operator, args, kwargs, operator(*args, **kwargs), 1.0)
    return doubled


def test_what_float32_takes_is_tried() -> None:
    doubled = seen(ATEN.mm.default, WIDE, WIDE)
    assert doubled.seconds == doubled.tried_s == 1.0
    assert doubled.double_s > 0
    assert doubled.single_s > 0
    assert doubled.spared() is not None


def test_what_turns_one_into_the_other_would_not_be_there() -> None:
    doubled = seen(ATEN._to_copy.default, WIDE, dtype=torch.float32)
    assert doubled.spared() == 1.0


def test_float32_is_none_of_it() -> None:
    doubled = seen(ATEN.mm.default, WIDE.float(), WIDE.float())
    assert doubled.seconds == 0
    assert doubled.spared() is None


@pytest.mark.parametrize(
    ("operator", "args"),
    [
        (ATEN.add_.Tensor, (WIDE.clone(), 1.0)),
        (ATEN.bernoulli.default, (WIDE,)),
        (ATEN.t.default, (WIDE,)),
    ],
)
def test_what_would_show_is_not_run_again(operator: Any, args: Any) -> None:
    before = torch.get_rng_state()
    doubled = Doubled(None)
    doubled.see(operator, args, {}, WIDE, 1.0)
    assert doubled.seconds == 1.0
    assert doubled.tried_s == 0
    assert torch.equal(before, torch.get_rng_state())


def test_running_statistics_stay_as_the_step_left_them() -> None:
    mean, variance = WIDE[0].clone(), WIDE[1].clone()
    doubled = Doubled(None)
    args = (WIDE, None, None, mean, variance, True, 0.1, 1e-5)
    out = ATEN.native_batch_norm.default(*args)
    before = mean.clone()
    doubled.see(ATEN.native_batch_norm.default, args, {}, out, 1.0)
    assert torch.equal(mean, before)
    assert (doubled.seconds, doubled.tried_s) == (1.0, 0.0)


def test_what_cannot_be_run_again_is_left_untried() -> None:
    """And the counting goes on: by a sparse tensor, or an operator that float32 is not for."""
    doubled = Doubled(None)
    sparse = WIDE.to_sparse()
    doubled.see(ATEN._sparse_mm.default, (sparse, WIDE), {}, WIDE, 1.0)
    assert doubled.seconds == 1.0
    doubled.meet((sparse, WIDE.float()), sparse, sys._getframe())
    assert doubled.where is not None

    class Failing:
        tags = ()
        _schema = ATEN.mm.default._schema

        def __call__(self, *args: Any) -> Any:
            raise RuntimeError("not implemented for 'Float'")

    doubled.see(Failing(), (WIDE, WIDE), {}, WIDE, 1.0)
    assert doubled.seconds == 2.0


def test_of_a_model_in_float64_nothing_is_run_again() -> None:
    doubled = Doubled(nn.Linear(2, 2).double())
    doubled.see(ATEN.mm.default, (WIDE, WIDE), {}, WIDE, 1.0)
    assert doubled.seconds == 0


def test_what_needs_much_memory_is_not_run_again() -> None:
    large = torch.empty(1, dtype=torch.float64).expand(MOST_BYTES // 8 + 1)
    doubled = Doubled(None)
    doubled.see(ATEN.clone.default, (large,), {}, large, 1.0)
    assert doubled.tried_s == 0


def test_most_of_it_has_to_be_tried() -> None:
    doubled = Doubled(None)
    doubled.double_s, doubled.single_s, doubled.tried_s = 1.0, 0.25, 1.0
    doubled.seconds = 2.1
    assert doubled.spared() is None
    doubled.seconds = 1.9
    assert doubled.spared() == 0.75


def test_arguments_in_float32() -> None:
    given = (WIDE, [WIDE, 2], torch.float64, torch.arange(2), None)
    made = in_float32(given)
    assert made[0].dtype == made[1][0].dtype == made[2] == torch.float32
    assert made[1][1] == 2
    assert made[3].dtype == torch.int64
    assert made[4] is None
    assert in_float32({"dtype": torch.float64}) == {"dtype": torch.float32}


class Turned(nn.Module):
    """Holds its tables in one of the ways there are."""

    def __init__(self, way: str) -> None:
        super().__init__()
        if way == "buffer":
            self.register_buffer("table", WIDE)
        elif way == "pair":
            self.tables = (WIDE, WIDE.sin())
        elif way == "attribute":
            self.table = WIDE


@pytest.mark.parametrize(
    ("way", "by"),
    [
        ("buffer", "Turned.table"),
        ("pair", "Turned.tables"),
        ("attribute", "Turned.table"),
        ("", ""),
    ],
)
def test_what_brings_float64_is_named(way: str, by: str) -> None:
    doubled = Doubled(nn.Sequential(Turned(way)))
    rows = torch.rand(64, 64)
    doubled.meet((rows, WIDE[:8]), WIDE, sys._getframe())
    assert doubled.by == by
    assert doubled.where is not None
    assert "test_doubled.py" in doubled.where


def test_float64_alone_is_met_nowhere() -> None:
    doubled = Doubled(None)
    doubled.meet((WIDE, WIDE), WIDE, sys._getframe())
    doubled.meet((WIDE, WIDE.float()), WIDE.float(), sys._getframe())
    assert doubled.where is None
