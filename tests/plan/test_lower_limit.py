"""Loops that count up to a limit, within what has to be gone through at their end."""

from __future__ import annotations

import ast
import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from outpace.plan.leave import follow, ways_out
from outpace.plan.lower_limit import limit_of

TOLD: list[str] = []


@contextlib.contextmanager
def bar() -> Iterator[None]:
    """As a progress bar, which is closed."""
    yield
    TOLD.append("closed")


def leave() -> bool:
    exits, last = ways_out(sys._getframe(1))
    assert follow(exits, lambda: TOLD.append("left"))
    return last


class Trainer:
    """As many write it."""

    def __init__(self) -> None:
        self.step, self.steps = 0, 100

    def train(self) -> None:
        with bar():
            while self.step < self.steps:
                for batch in range(2):
                    if (self.step, batch) == (3, 0):
                        assert leave()
                TOLD.append(f"step {self.step}")
                self.step += 1
        TOLD.append("complete")


@pytest.fixture(autouse=True)
def told() -> list[str]:
    TOLD.clear()
    return TOLD


def test_an_attribute(told: list[str]) -> None:
    trainer = Trainer()
    trainer.train()
    steps = [f"step {number}" for number in range(4)]
    assert told == [*steps, "left", "closed", "complete"]
    assert (trainer.step, trainer.steps) == (4, 100)
    assert sys.gettrace() is None


def test_a_variable(told: list[str]) -> None:
    step, most = 0, 100
    with bar():
        while most >= step:
            if step == 3:
                assert leave()
            step += 1
    assert (step, most, told) == (4, 100, ["left", "closed"])
    assert sys.gettrace() is None


def test_a_limit_that_is_gone_meanwhile(told: list[str]) -> None:
    """The loop goes on, as its own lines have it."""
    trainer, steps = Trainer(), 0
    with bar():
        while trainer.step < trainer.steps:
            trainer.step += 1
            if trainer.step == 3:
                assert leave()
                del trainer.steps
                with pytest.raises(AttributeError):
                    assert trainer.step < trainer.steps
                break
            steps += 1
    assert (steps, told) == (2, ["left", "closed"])
    assert sys.gettrace() is None


@pytest.mark.parametrize(
    ("test", "body", "found"),
    [
        ("step < most", "step += 1", True),
        ("step < most", "most = step + 2", False),
        ("most > step", "step += 1", True),
        ("0 < step", "step -= 1", False),
        ("step > 0", "step -= 1", False),
        ("step < 10", "step += 1", False),
        ("step < most < 3", "step += 1", False),
        ("step != most", "step += 1", False),
        ("step < len(done)", "step += 1", False),
        ("step < flag", "step += 1", False),
        ("step < settings.most", "step += 1", True),
        ("step < settings.computed", "step += 1", False),
        ("step < unknown", "step += 1", False),
        ("True", "step += 1", False),
    ],
)
def test_which_loops(test: str, body: str, found: bool) -> None:
    class Settings:
        def __init__(self) -> None:
            self.most = 3

        @property
        def computed(self) -> int:
            return 3

    names: dict[str, Any] = {"step": 1, "most": 3, "done": [], "flag": True}
    names |= {"settings": Settings(), "look": lambda loop: limit_of(loop, sys._getframe(1))}
    (loop,) = ast.parse(f"while {test}:\n    {body}").body
    assert isinstance(loop, ast.While)
    exec("given = look(loop)", names | {"loop": loop}, names)  # noqa: S102
    assert (names["given"] is not None) is found


MOST = 1000


class Settings:
    """As a script may have them."""

    most = 1000


def up_to_a_constant() -> int:
    step = 0
    with bar():
        while step < MOST:
            if step == 3:
                assert leave()
            step += 1
    return step


def up_to_a_classs() -> int:
    step = 0
    with bar():
        while step < Settings.most:
            if step == 3:
                assert leave()
            step += 1
    return step


@pytest.mark.parametrize("count", [up_to_a_constant, up_to_a_classs])
def test_a_limit_of_the_module_or_of_a_class(count: Callable[[], int]) -> None:
    assert count() == 4
    assert (MOST, Settings.most) == (1000, 1000)
    assert sys.gettrace() is None
