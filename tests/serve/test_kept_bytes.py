"""Bytes that several processes keep together."""

from __future__ import annotations

import os
from collections.abc import Callable

from outpace.serve.kept_bytes import KeptBytes


def in_child(does: Callable[[], bool]) -> bool:
    """What a forked child tells, which has ended then."""
    child = os.fork()
    if child == 0:
        os._exit(0 if does() else 1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_one_limit_for_all() -> None:
    kept = KeptBytes()
    assert kept.take(60, 100)
    assert in_child(lambda: kept.own == 0 and kept.take(40, 100) and kept.own == 40)
    assert not in_child(lambda: kept.take(41, 100))
    assert kept.own == 60
    kept.give_back(60)
    assert in_child(lambda: kept.take(100, 100))


def test_what_a_living_child_keeps_is_its_own() -> None:
    kept = KeptBytes()
    (asks, asked), (tells, told) = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        os.write(told, b"y" if kept.take(70, 100) else b"n")
        os.read(asks, 1)
        os._exit(0)
    assert os.read(tells, 1) == b"y"
    assert not kept.take(31, 100)
    assert kept.take(30, 100)
    os.write(asked, b".")
    os.waitpid(child, 0)
    assert kept.take(70, 100), "it has ended, and keeps nothing any more"


def test_many_that_come_and_go_have_a_place_each() -> None:
    kept = KeptBytes()
    for _ in range(40):
        assert in_child(lambda: kept.take(10, 10))
    assert kept.take(10, 10)
