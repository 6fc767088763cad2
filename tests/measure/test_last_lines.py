"""Where a script was when it ended: in the midst of its training, or after it."""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from outpace.measure.last_lines import LastLines
from outpace.measure.loops import outermost_loop
from outpace.seams.where import Place

HEAD = """
    def train(step):
        loss = 1.0
        for epoch in range(2):
            for batch in range(2):
                step()
                HERE
        return loss

    def main(step):
        loss = train(step)
        AFTER
    """
FOLLOWED = """
    def run(step):
        try:
            main(step)
        except ValueError as error:
            raise RuntimeError("told") from error
    """
EXITS = """
    import sys
    def run(step):
        sys.exit(main(step))
    """


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    before = sys.exit
    yield
    sys.exit = before
    if hasattr(sys, "last_value"):
        del sys.last_value


def within(path: Path, name: str) -> bool | None:
    """What is told of a script whose function steps."""
    os.utime(path, (0, 0))  # written before this process began, as a script that is run is
    places: list[Place] = []
    lines = LastLines()
    lines.note_exit()
    try:
        runpy.run_path(str(path))[name](lambda: places.append(outermost_loop()))
    except SystemExit:
        pass
    except Exception as error:
        sys.last_value = error
    return lines.within(places[-1])


@pytest.mark.parametrize(
    ("here", "after", "name", "found"),
    [
        ("if epoch: raise ValueError", "pass", "main", True),
        ("pass", "assert loss < 0.5", "main", False),
        ("if epoch: raise ValueError", "pass", "run", True),
        ("pass", "raise ValueError", "run", False),
        ("pass", "pass", "main", None),
    ],
)
def test_exceptions(
    here: str, after: str, name: str, found: bool | None, script: Callable[[str], Path]
) -> None:
    path = script((HEAD + FOLLOWED).replace("HERE", here).replace("AFTER", after))
    assert within(path, name) is found


@pytest.mark.parametrize(
    ("here", "after", "name", "found"),
    [
        ("if epoch: sys.exit(1)", "pass", "main", True),
        ("pass", "sys.exit(loss > 0.5)", "main", False),
        ("pass", "return loss > 0.5", "run", False),
        ("pass", "raise SystemExit(1)", "main", None),
    ],
)
def test_exit_codes(
    here: str, after: str, name: str, found: bool | None, script: Callable[[str], Path]
) -> None:
    path = script((HEAD + EXITS).replace("HERE", here).replace("AFTER", after))
    assert within(path, name) is found


def test_a_step_of_unknown_place_may_be_anywhere() -> None:
    lines = LastLines()
    sys.last_value = ValueError("told")
    assert lines.within(()) is True
