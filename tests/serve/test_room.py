"""A worker waits before it makes more than there is room for. One process plays both sides here."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from outpace.serve import room as room_module
from outpace.serve.room import Room


class Waits(Exception):
    """Instead of a pause."""


@pytest.fixture
def room(monkeypatch: pytest.MonkeyPatch) -> Room:
    def pause(seconds: float) -> None:
        raise Waits

    monkeypatch.setattr(room_module, "time", SimpleNamespace(sleep=pause))
    found = Room(1, 100)
    found.begin()
    return found


def make(room: Room, *sizes: int) -> None:
    for size in sizes:
        room.wait()
        room.made(size)


def test_what_was_asked_for_makes_room(room: Room) -> None:
    make(room, 40, 40)
    with pytest.raises(Waits):
        room.wait()
    room.ask(0)
    make(room, 60)
    with pytest.raises(Waits):
        room.wait()
    room.ask(1)
    with pytest.raises(Waits):
        room.wait()  # the next may have 60 as well
    room.ask(2)
    make(room, 1)


def test_one_is_made_however_large(room: Room) -> None:
    make(room, 1000)
    with pytest.raises(Waits):
        room.wait()
    room.ask(0)
    make(room, 1000)


def test_another_iteration_begins_with_nothing_on_its_way(room: Room) -> None:
    make(room, 60)
    room.lift()
    make(room, 60, 60)  # what is put away need not wait
    room.begin()
    make(room, 41)
    with pytest.raises(Waits):
        room.wait()


def test_who_waits_is_let_go(monkeypatch: Any) -> None:
    room, waiting = Room(1, 0), threading.Event()
    room.begin()
    make(room, 1)
    tells = SimpleNamespace(sleep=lambda seconds: waiting.set())
    monkeypatch.setattr(room_module, "time", tells)
    worker = threading.Thread(target=room.wait)
    worker.start()
    assert waiting.wait(10)
    room.lift()
    worker.join(10)
    assert not worker.is_alive()
