"""Locks that are free in a forked child, and what they guard is whole there.

A child has but the thread that forked. A lock that another thread held then would stay locked in it for
good, so it is waited for before a fork.
"""

from __future__ import annotations

import os
import threading


def lock_for_forks() -> threading.Lock:
    """One for a whole module: it is never given up."""
    lock = threading.Lock()
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(
            before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release
        )
    return lock
