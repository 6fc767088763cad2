"""The landing bench: what counts as landed."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

BENCH = Path(__file__).parents[2] / "bench"
sys.path.insert(0, str(BENCH))
SPEC = importlib.util.spec_from_file_location("bench_landing", BENCH / "landing.py")
assert SPEC is not None
bench: Any = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(bench)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("used", "rate", "saved", "landed"),
    [
        (0.99, 0.5, True, True),
        (0.99, None, True, False),  # no rate was told: it was not taken down
        (0.99, 2.0, True, False),
        (1.01, 0.5, True, False),
        (0.96, 0.5, True, False),
        (0.99, 0.5, False, False),
    ],
)
def test_what_counts(used: float, rate: float | None, saved: bool, landed: bool) -> None:
    assert bench.Landed(used, rate, 100, saved, 0).landed is landed
