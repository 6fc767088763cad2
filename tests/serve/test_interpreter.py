"""How much of its time work keeps the interpreter from other threads."""

from __future__ import annotations

import threading
import time

import numpy as np

from outpace.serve.interpreter import share_held


def test_python_keeps_it_and_what_waits_or_multiplies_does_not() -> None:
    large = np.ones((400, 400))
    python = share_held(lambda: sum(number * number for number in range(3000)))
    assert python is not None
    for work in (lambda: time.sleep(0.002), lambda: large @ large):
        other = share_held(work)
        assert other is not None
        assert other < 0.5 < python


def test_half_of_each() -> None:
    def work() -> None:
        begun = time.perf_counter()
        while time.perf_counter() - begun < 0.01:
            pass
        time.sleep(0.01)

    found = share_held(work)
    assert found is not None
    assert found < 0.7  # of looks: while others may run there are more


def test_an_error_ends_it_and_leaves_no_thread() -> None:
    def fails() -> None:
        raise OSError("no such sample")

    before = threading.active_count()
    try:
        share_held(fails)
    except OSError:
        pass
    else:
        raise AssertionError
    assert threading.active_count() == before


def test_one_call_is_enough_where_it_is_long() -> None:
    calls: list[int] = []

    def work() -> None:
        calls.append(1)
        time.sleep(0.06)

    assert share_held(work) is not None
    assert len(calls) == 1
