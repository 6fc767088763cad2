"""Loops that nothing follows end as they always do: nothing is in the range that they begin anew with."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator

import pytest

from outpace.plan.leave import follow, ways_out

Done = list[object]
EPOCHS = 10**9
"""a loop that turned all of them would take minutes"""


def leave(done: Done) -> bool:
    """As a step does when the time is up."""
    exits, last = ways_out(sys._getframe(1))
    assert follow(exits, lambda: done.append("left"))
    return last


def train(done: Done, epochs: int) -> None:
    for epoch in range(epochs):
        for step in [1, 2, 3]:
            if (epoch, step) == (1, 2):
                assert leave(done)
            done.append(step)
        done.append(f"validated {epoch}")


def test_a_function_that_is_over_with_its_loop() -> None:
    done: Done = []
    train(done, EPOCHS)
    done.append("saved")
    assert done == [1, 2, 3, "validated 0", 1, 2, "validated 1", "left", "saved"]
    assert sys.gettrace() is None
    assert "range" not in globals()


def test_what_else_a_loop_calls_is_not_called_again() -> None:
    """Its head would be run a second time, and begin a second bar's worth of them."""
    done: Done = []

    def named(name: str) -> int:
        done.append(name)
        return 0

    def counted(epochs: int) -> None:
        for epoch, _ in enumerate(range(epochs), named("bar")):
            if epoch == 2:
                exits, _ = ways_out(sys._getframe(0))
                assert not follow(exits, lambda: None)

    counted(4)
    assert done == ["bar"]


def test_the_ends_of_with_and_try_around_it_are_gone_through() -> None:
    done: Done = []

    @contextlib.contextmanager
    def bar() -> Iterator[None]:
        yield
        done.append("bar closed")

    def within() -> None:
        try:
            with bar():
                for step in range(EPOCHS):
                    if step == 2:
                        assert leave(done)
        except KeyboardInterrupt:
            done.append("never")
        finally:
            done.append("finally")

    within()
    done.append("saved")
    assert done == ["left", "bar closed", "finally", "saved"]
    assert sys.gettrace() is None


def test_what_follows_in_the_caller_counts_as_ever() -> None:
    done: Done = []
    train(done, EPOCHS)
    done += [each for each in range(3) for _ in range(2)]
    assert done[-6:] == [0, 0, 1, 1, 2, 2]


def test_the_callers_loop_is_left_too() -> None:
    done: Done = []
    for fold in range(EPOCHS):
        train(done, 3)
        done.append(f"fold {fold}")
    done.append("saved")
    assert done[-3:] == ["fold 0", "left", "saved"]
    assert sys.gettrace() is None


def test_enumerate_and_a_name_for_what_the_range_is_of() -> None:
    done: Done = []
    epochs = EPOCHS

    def counted() -> None:
        for index, _ in enumerate(reversed(range(2, epochs + 2))):
            if index == 1:
                assert leave(done)
            done.append(index)

    counted()
    assert done == [0, 1, "left"]


def test_a_range_of_the_scripts_own_stays_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(
        globals(), "range", own := lambda *limits: list(sys.modules["builtins"].range(*limits))
    )
    done: Done = []
    train(done, 5)
    assert done[-1] == "left"
    assert globals()["range"] is own


def one_step(done: Done) -> None:
    for _ in range(EPOCHS):
        leave(done)


def test_no_other_frame_and_no_other_thread_has_an_empty_range() -> None:
    found: list[int] = []
    over = threading.Event()

    def count() -> None:
        while not over.is_set():
            found.append(sum(1 for _ in range(5)))

    thread = threading.Thread(target=count)
    thread.start()
    try:
        for _ in [0] * 200:
            one_step([])
    finally:
        over.set()
        thread.join()
    assert set(found) == {5}


def limits() -> int:
    return 3


@pytest.mark.parametrize("way", ["list", "call", "while"])
def test_what_cannot_be_begun_anew_is_not(way: str) -> None:
    last: list[bool] = []

    def over_a_list() -> None:
        for _ in [0, 1, 2]:
            last.append(ways_out(sys._getframe())[1])  # noqa: PERF401

    def over_what_is_called() -> None:
        for _ in range(limits()):
            last.append(ways_out(sys._getframe())[1])  # noqa: PERF401

    def until() -> None:
        while len(last) < 3:
            last.append(ways_out(sys._getframe())[1])

    called = {
        "list": over_a_list,
        "call": over_what_is_called,
        "while": until,
    }[way]
    called()
    assert last == [False] * 3
