"""More threads while the training waits for its batches, as long as that helps.

Hill climbing with hysteresis: one thread more where the last batches were waited for, kept only if
the wait became shorter by a good part; else it is taken back, and not tried again soon.
"""

from __future__ import annotations

from collections.abc import Callable

from outpace.serve.tuner import COUNTS, depth_of

LOOKED_AT = 32
"""batches between one decision and the next"""
WAITING = 0.02
"""share of the time that may be waited"""
BETTER = 0.95
"""times as long the whole may take with a thread more, for it to be kept"""
PATIENCE = 8
"""decisions after one that did not help, until the next try"""


class Climb:
    """Decides on the number of threads. ``most``: never more than these."""

    def __init__(self, workers: int, most: int) -> None:
        self.workers, self.most = workers, most
        self.waited = self.spent = 0.0
        self.count = self.rest = 0
        self.before: float | None = None
        """seconds a batch before the thread that is being tried"""

    def told(self, waited_s: float, spent_s: float, say: Callable[[str], None]) -> int:
        """A batch was waited for, of so many seconds since the one before; the workers wanted now."""
        self.waited += waited_s
        self.spent += spent_s
        self.count += 1
        if self.count == LOOKED_AT:
            self._decide(say)
            self.waited, self.spent, self.count = 0.0, 0.0, 0
        return self.workers

    def _decide(self, say: Callable[[str], None]) -> None:
        each = self.spent / self.count
        if self.before is not None:
            if each < BETTER * self.before:
                say(
                    f"{self.workers} threads: {1e3 * self.before:.1f} -> {1e3 * each:.1f} ms a batch"
                )
            else:
                self.workers -= 1
                self.rest = PATIENCE
                say(f"{self.workers + 1} threads were no faster: back to {self.workers}")
            self.before = None
            return
        if self.rest:
            self.rest -= 1
        elif self.waited > WAITING * self.spent and self.workers < self.most:
            self.before = each
            self.workers += 1


def most_threads(workers: int, batch_bytes: int, prefetch_bytes: int, ram: int) -> int:
    """Threads that so many may come to be while the training waits: those whose batches fit."""
    most = min(COUNTS["threads"][-1], 2 * workers + 2)
    return next(
        (
            count
            for count in range(most, workers, -1)
            if (depth_of(count, batch_bytes, prefetch_bytes) + count) * batch_bytes <= ram
        ),
        workers,
    )
