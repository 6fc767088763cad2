"""What a training waits for a disk: the first time that it reads its files, and not once memory has them.

A first validation may take half as long again as those that follow, by which an end is found too early.
Where the system does not tell of such waiting, or memory may not keep what was read, none is told of.
"""

from __future__ import annotations

import time

from outpace.measure.counters import disk_read_bytes, disk_waits_s
from outpace.measure.machine import free_memory

KEPT = 0.5
"""of free memory that files may take and surely be kept"""


class FirstReads:
    """Looks at the counters from here on."""

    def __init__(self) -> None:
        self._read = disk_read_bytes()
        self._before = _now()

    def take(self) -> float:
        """Seconds that the calling thread waited for a disk since this was last asked.

        Others wait for it too: it is no more than the thread was idle for.
        """
        (ran, wall, waited), (ran_before, wall_before, waited_before) = _now(), self._before
        self._before = ran, wall, waited
        if waited is None or waited_before is None or waited == waited_before:
            return 0.0
        idle = (wall - wall_before) - (ran - ran_before)
        return max(0.0, min(idle, waited - waited_before)) if self._are_kept() else 0.0

    def _are_kept(self) -> bool:
        now = disk_read_bytes()
        if now is None or self._read is None:
            return False
        return now - self._read < KEPT * free_memory()


def _now() -> tuple[float, float, float | None]:
    """Seconds that this thread ran, of the clock, and of waiting for disks."""
    return time.thread_time(), time.perf_counter(), disk_waits_s()
