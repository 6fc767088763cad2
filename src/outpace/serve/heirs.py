"""What forked processes have inherited, and may look at for as long as they are there.

Each has the end of a pipe open, which closes with it and all that it forks in turn, or when it becomes
another program: so whoever holds the other end knows, without asking anyone.
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
import weakref
from collections.abc import Iterator
from typing import final


@final
class Heirs:
    """Processes that are forked while things are ``lent``, by their numbers."""

    def __init__(self, lent: set[int]) -> None:
        self.lent = lent
        self.inherited: dict[int, set[int]] = {}
        """end of a pipe -> what those at its other end have"""
        weakref.finalize(self, _close, os.getpid(), self.inherited).atexit = False
        _known.add(self)

    def hold(self, number: int) -> bool:
        """Whether one of them may look at it."""
        return any(number in numbers for numbers in list(self.inherited.values()))

    def given_back(self) -> list[int]:
        """What is neither lent nor held any more, now that some of them have ended."""
        found: set[int] = set()
        for end in [end for end in list(self.inherited) if _at_end(end)]:
            free = (
                self.inherited.get(end, set()) - self.lent
            )  # while any other thread finds it held
            if self.inherited.pop(end, None) is not None:  # else another thread was sooner
                found |= free
                os.close(end)
        return [number for number in found if not self.hold(number)]


_known: weakref.WeakSet[Heirs] = weakref.WeakSet()
_pipes: dict[int, tuple[int, int]] = {}
"""of forks under way, by thread"""
_expected = True


@contextlib.contextmanager
def no_heirs() -> Iterator[None]:
    """Processes that are forked inside look at nothing of their parent's."""
    global _expected
    before, _expected = _expected, False
    try:
        yield
    finally:
        _expected = before


def _before() -> None:
    if _expected and any(heirs.lent for heirs in _known):
        _pipes[threading.get_ident()] = os.pipe()


def _in_parent() -> None:
    pipe = _pipes.pop(threading.get_ident(), None)
    if pipe is None:
        return
    ours, theirs = pipe
    os.close(theirs)
    for heirs in list(_known):
        if heirs.lent:
            heirs.inherited[os.dup(ours)] = set(heirs.lent)
    os.close(ours)


def _in_child() -> None:
    """The end of the pipe stays open."""
    pipe = _pipes.pop(threading.get_ident(), None)
    if pipe is not None:
        os.close(pipe[0])
    for heirs in list(_known):
        _close(os.getpid(), heirs.inherited)
    _known.clear()  # what is lent there is the parent's


def _close(process: int, inherited: dict[int, set[int]]) -> None:
    if process == os.getpid():
        for end in inherited:
            os.close(end)
        inherited.clear()


def _at_end(end: int) -> bool:
    poll = select.poll()
    poll.register(end, select.POLLIN)
    return bool(poll.poll(0))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
