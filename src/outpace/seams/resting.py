"""Worker processes that rest while another arm runs, and that must never be left resting.

A stopped process does not hear SIGTERM, so that whoever waits for its end waits for ever: python at
its exit, or a DataLoader that is dropped. All that rest are therefore woken before either.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
from collections.abc import Iterable

_resting: set[int] = set()


def rest(pids: Iterable[int]) -> None:
    """Stop processes where they are."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
            _resting.add(pid)
    # Registered anew each time, so that it runs before what others have registered meanwhile.
    atexit.unregister(wake_all)
    atexit.register(wake_all)


def wake(pids: Iterable[int]) -> None:
    """Let processes go on that were stopped by `rest`."""
    for pid in pids:
        if pid in _resting:
            _resting.discard(pid)
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def wake_all() -> None:
    """Let all go on."""
    wake(list(_resting))


def worker_pids(iterator: object) -> list[int]:
    """The worker processes of a DataLoader's iterator that are alive."""
    workers = getattr(iterator, "_workers", ())
    return [w.pid for w in workers if w.pid is not None and w.is_alive()]
