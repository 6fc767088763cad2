"""Evidence about the input: how many epochs a run has."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from outpace.measure.collect_input import _epochs
from outpace.measure.length import Loop


@pytest.mark.parametrize(
    ("loops", "total", "epochs"),
    [
        ([Loop(200, True)], 200, 10),  # a library's loop, or one around next()
        ([Loop(20, True), Loop(10, True)], 200, 10),
        ([Loop(200, True)], 210, 11),
        ([Loop(None, False), Loop(5, True)], 100, 5),
        ([Loop(None, False), Loop(50, True)], 100, 5),  # a count ends it before
        ([Loop(None, False)], None, 1),
        ([Loop(200, True)], None, None),
        ([], None, None),
    ],
)
def test_epochs_by_the_loops_and_by_the_steps(
    loops: list[Loop], total: int | None, epochs: int | None
) -> None:
    course = SimpleNamespace(loops=loops)
    watcher: Any = SimpleNamespace(course=course, total_steps=lambda micro_steps: total)
    assert _epochs(watcher, 20.0, 1) == epochs


def test_epochs_of_unknown_length_are_not_counted() -> None:
    course = SimpleNamespace(loops=[Loop(200, True)])
    watcher: Any = SimpleNamespace(course=course, total_steps=lambda micro_steps: 200)
    assert _epochs(watcher, None, 1) is None
