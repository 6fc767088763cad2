"""What else keeps the machine busy: what is measured beside it may not hold when it is quiet."""

from __future__ import annotations

import os
from collections.abc import Callable
from time import perf_counter, process_time_ns

from outpace.measure.counters import cores_busy_s, cpu_ns
from outpace.records.evidence import BESIDE
from outpace.seams.openmp import cores

SHORTEST_S = 1.0


class Others:
    """CPU time of others since this was made; ``workers`` are processes of the target's."""

    def __init__(self, workers: Callable[[], list[int]]) -> None:
        self.workers = workers
        self.begun = perf_counter()
        self.busy = cores_busy_s()
        self.own = self._own()

    def _own(self) -> float:
        ended = os.times()
        live = sum(cpu_ns(pid) or 0 for pid in self.workers())
        return (process_time_ns() + live) / 1e9 + ended.children_user + ended.children_system

    def cores(self) -> float:
        """Cores that others kept busy on average; 0 where that is not known."""
        busy, seconds = cores_busy_s(), perf_counter() - self.begun
        if busy is None or self.busy is None or seconds < SHORTEST_S:
            return 0.0
        return max(0.0, (busy - self.busy - (self._own() - self.own)) / seconds)


def said(busy: float) -> str | None:
    """A sentence for the user where it matters that others kept so many cores busy."""
    if busy < BESIDE:
        return None
    return (
        f"other processes kept {busy:.1f} of {cores()} cores busy meanwhile: all that is told holds "
        "beside them, and fewer threads are not advised, as they may pay for their sake alone"
    )
