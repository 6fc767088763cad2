"""What a forked child is to find: locks that are free, and no threads or processes that it has not.

A child has but the thread that forked. A lock that another thread held then would stay locked in it for
good, so it is waited for before a fork, and what it guards is whole there.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Protocol


class Forked(Protocol):
    """Has threads or processes."""

    def forked(self) -> None:
        """In a child: these are its parent's."""


def lock_for_forks() -> threading.Lock:
    """One for a whole module: it is never given up."""
    lock = threading.Lock()
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(
            before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release
        )
    return lock


def tell_in_forks(one: Forked) -> None:
    """Have ``forked`` be called in each forked child, as long as there is this one."""
    _told.add(one)


_told: weakref.WeakSet[Forked] = weakref.WeakSet()


def _tell() -> None:
    for one in list(_told):
        one.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_tell)
