"""More threads while the training waits for its batches, as long as that helps.

Hill climbing with hysteresis: one thread more where the last batches were waited for and the cores had
room, then as many as before again. Only if the time with it was shorter by a good part than both before and
after it does it come back; else it is not tried again soon.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from outpace.serve.rates import COUNTS, depth_of, memory

LOOKED_AT, LOOK_S = 32, 1.0
"""batches and seconds, at the least, between one decision and the next"""
WAITING = 0.02
"""share of the time that may be waited"""
BUSY = 0.9
"""share of the cores' time that this process takes, from which on another thread would only wait for one"""
BETTER = 0.95
"""times as long the whole may take with a thread more, for it to be kept"""
PATIENCE = 8
"""decisions after one that did not help, until the next try"""


class Climb:
    """Decides on the number of threads. ``most``: never more than these; ``cpu_s``: reads the seconds that
    this process has computed.
    """

    def __init__(
        self, workers: int, most: int, cores: int, cpu_s: Callable[[], float] = time.process_time
    ) -> None:
        self.workers, self.most, self.cores = workers, most, cores
        self.cpu_s, self.computed = cpu_s, cpu_s()
        self.waited = self.spent = 0.0
        self.count = self.rest = 0
        self.seen: list[float] = []
        """seconds a batch: before the thread that is being tried, and with it"""

    def told(self, waited_s: float, spent_s: float, say: Callable[[str], None]) -> int:
        """A batch was waited for, of so many seconds since the one before; the workers wanted now."""
        self.waited += waited_s
        self.spent += spent_s
        self.count += 1
        if self.count >= LOOKED_AT and self.spent >= LOOK_S:
            self._decide(say)
            self.waited, self.spent, self.count = 0.0, 0.0, 0
            self.computed = self.cpu_s()
        return self.workers

    def _decide(self, say: Callable[[str], None]) -> None:
        each = self.spent / self.count
        if len(self.seen) == 1:
            self.seen.append(each)
            self.workers -= 1
        elif self.seen:
            (before, more), self.seen = self.seen, []
            if more < BETTER * min(before, each):
                self.workers += 1
                say(f"{self.workers} threads: {1e3 * before:.1f} -> {1e3 * more:.1f} ms a batch")
            else:
                self.rest = PATIENCE
                say(f"{self.workers + 1} threads were no faster: {self.workers} are kept")
        elif self.rest:
            self.rest -= 1
        elif self.waited > WAITING * self.spent and self.workers < self.most and self._has_room():
            self.seen = [each]
            self.workers += 1

    def _has_room(self) -> bool:
        return self.cpu_s() - self.computed < BUSY * self.cores * self.spent


def most_threads(workers: int, batch_bytes: int, prefetch_bytes: int, ram: int) -> int:
    """Threads that so many may come to be while the training waits: those whose batches fit."""

    def fit(count: int) -> bool:
        depth = depth_of("threads", count, batch_bytes, prefetch_bytes, ram)
        return memory(batch_bytes, "threads", count, depth) <= ram

    most = min(COUNTS["threads"][-1], 2 * workers + 2)
    return next(filter(fit, range(most, workers, -1)), workers)
