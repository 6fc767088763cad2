"""How much of its time work keeps the interpreter to itself, so that no other thread runs Python meanwhile.

A thread wakes up again and again while the work is done in another. Whoever computes in Python gives the
interpreter up only when it is asked for, after `sys.getswitchinterval()`; reading, decoding and numpy's
larger operations leave it to others. So how late the thread wakes up tells how much is of which kind.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable

SLEEP_S = 0.0003
"""between two looks"""
LEAST_S = 0.04
"""that work is looked at, over and over"""
FEWEST = 5
"""looks that tell something"""


def share_held(work: Callable[[], object]) -> float | None:
    """The share of its time in which ``work`` lets no other thread run Python, from 0 to 1; None where it was
    over too soon to tell. It is done for at least 40 ms, as often as that takes.
    """
    waker = _Waker()
    began = time.perf_counter()
    waker.start()
    try:
        while time.perf_counter() - began < LEAST_S:
            work()
    finally:
        waker.stop()
    return waker.share()


class _Waker:
    """A thread that sleeps and notes how late it wakes up."""

    def __init__(self) -> None:
        self._late: list[float] = []
        self._ends = False
        self._thread = threading.Thread(target=self._run, name="outpace-waker", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ends = True
        self._thread.join()

    def _run(self) -> None:
        while not self._ends:
            asleep = time.perf_counter()
            time.sleep(SLEEP_S)
            self._late.append(time.perf_counter() - asleep - SLEEP_S)

    def share(self) -> float | None:
        """Of the looks, those that had to wait: each as far as it waited, of the time after which it may."""
        if len(self._late) < FEWEST:
            return None
        interval = sys.getswitchinterval()
        return sum(min(1.0, max(0.0, late) / interval) for late in self._late) / len(self._late)
