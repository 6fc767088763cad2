"""How long the whole process stood still: stopped (SIGSTOP, Ctrl-Z), or frozen with its container.

A thread looks at the clock ten times a second, and is late where the process stood still. It is also
late where other code holds the interpreter, but then it asks for it again and again, which the system
counts as waits. Not told of: less than a second, other processes that this one waits for, and systems
that count no waits by thread (Linux does).
"""

from __future__ import annotations

import _thread
import os
import sys
import time

EVERY_S = 0.1
LEAST_S = 1.0
"""a thread may be so late on a busy machine"""
SLOW = 4.0
"""times the interpreter's interval that one wait for it may take"""
MOST_WAIT_S = 0.2
"""for a look that is late, by whoever asks"""


def stood_still(seconds: float, waits: int, interval_s: float) -> float:
    """Seconds that the process stood still between two looks; 0 where it ran.

    ``waits``: of the looking thread, for an interpreter that is asked for each ``interval_s``.
    """
    still = seconds - EVERY_S - SLOW * interval_s * waits
    return still if still > LEAST_S else 0.0


class Stops:
    """Looks at the clock from here on."""

    def __init__(self) -> None:
        self.total_s = 0.0
        self._taken_s = 0.0
        self._looked = time.perf_counter()
        self._pid = os.getpid()
        self._looks = _waits() is not None
        if self._looks:
            # `threading` does not know it: a script may wait for the end of all threads that it knows.
            _thread.start_new_thread(self._look, ())

    def take(self) -> float:
        """Seconds that the process stood still since this was last asked."""
        begun = time.perf_counter()
        # What has just gone on is found out by a look that has not been taken yet.
        while self._is_late() and time.perf_counter() - begun < MOST_WAIT_S:
            time.sleep(0.001)
        total_s = self.total_s
        taken, self._taken_s = total_s - self._taken_s, total_s
        return taken

    def _is_late(self) -> bool:
        if os.getpid() != self._pid or not self._looks:
            return False
        return time.perf_counter() - self._looked > EVERY_S + LEAST_S

    def _look(self) -> None:
        waits = _waits() or 0
        while True:
            time.sleep(EVERY_S)
            now, waited = time.perf_counter(), _waits() or 0
            self.total_s += stood_still(now - self._looked, waited - waits, sys.getswitchinterval())
            self._looked, waits = now, waited


def _waits() -> int | None:
    """How often this thread has waited so far; None where the system does not tell."""
    try:
        import resource

        return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw
    except (ImportError, AttributeError):
        return None
