"""Columns that lose much as 32 bits are named, others are not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from outpace.serve.rounding import Rounding

pa = pytest.importorskip("pyarrow")
DAY_S = 86_400.0
SINCE_1970 = 1.7e9


def told(*parts: Any) -> str:
    rounding = Rounding()
    for part in parts:
        before = pa.record_batch({"x": pa.array(part, pa.float64(), from_pandas=True)})
        after = pa.record_batch({"x": before.column(0).cast(pa.float32())})
        assert rounding.look(before, after) is after
    return rounding.told()


@pytest.mark.parametrize(
    ("parts", "named"),
    [
        (
            [np.linspace(0, DAY_S, 999) + SINCE_1970],
            "'x' (up to 64, its values lie within 8.6e+04)",
        ),
        ([[SINCE_1970, None], [SINCE_1970 + 100, np.nan, np.inf]], "'x' (up to "),
        ([[1e300, 1.0]], "'x' (up to inf, "),
        ([np.linspace(0, 1, 999)], ""),
        ([np.linspace(-1e-30, 1e-30, 999)], ""),
        ([np.linspace(273, 313, 999)], ""),
        ([np.arange(1990.0, 2026.0)], ""),
        ([[0.1, 0.1]], ""),
        ([[None, np.nan], [np.inf, -np.inf]], ""),
    ],
    ids=["a day", "parts", "overflow", "share", "small", "kelvin", "years", "constant", "none"],
)
def test_what_is_lost_is_told_of_where_it_is_much(parts: list[Any], named: str) -> None:
    found = told(*parts)
    assert named in found if named else not found


def test_other_columns_are_not_looked_at() -> None:
    batch = pa.record_batch({"n": [2**53, 2**53 + 1], "name": ["a", "b"]})
    rounding = Rounding()
    rounding.look(batch, batch)
    assert rounding.told() == ""
