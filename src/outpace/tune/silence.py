"""Whether a process of the target hangs, as workers do that were forked while another thread held a lock.

It is told by its files: a step, a block or a round that ended is written down there, or the end of a run
that tells nothing before; and by its CPU time, as it may evaluate or compile for long. Limits: what only
waits for as long, as for a slow server, looks the same, and a loop without an end does not look so.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from time import monotonic

from outpace.plan.budget import duration
from outpace.tune.files import MARKER, PROGRESS, STATUS, read

TIMES, MORE_S = 3.0, 60.0
"""of the silence that is expected: so many times as long, and seconds beside"""
STOPPED_S = 1.0
"""we have looked more often, unless we were stopped too"""
ASKED_S, BUSY = 10.0, 0.2
"""seconds of silence after which CPU time is asked for, again and again; share of a core that is work"""


def patience(expected_s: float) -> float:
    """Seconds of silence after which a process is taken to hang."""
    return TIMES * expected_s + MORE_S


class Silence:
    """For how long a running process has told nothing and done next to nothing.

    ``cpu_s``: gives the CPU seconds that it has taken by now.
    """

    def __init__(self, folder: Path, cpu_s: Callable[[], float]) -> None:
        self.files = [folder / name for name in (STATUS, PROGRESS, MARKER)]
        self.cpu_s = cpu_s
        self.seconds = self.asked_at = 0.0
        self.taken_s: float | None = None
        self.told = self._told()
        self.looked = monotonic()

    def look(self) -> float:
        """Seconds of it by now; while we are stopped, as by Ctrl-Z, so is the process."""
        told, now = self._told(), monotonic()
        if told == self.told:
            self.seconds += min(now - self.looked, STOPPED_S)
        else:
            self.told, self.taken_s = told, None
            self.seconds = self.asked_at = 0.0
        self.looked = now
        if self.seconds - self.asked_at >= ASKED_S:
            self._ask()
        return self.seconds

    def _ask(self) -> None:
        taken, before, since = self.cpu_s(), self.taken_s, self.seconds - self.asked_at
        self.taken_s, self.asked_at = taken, self.seconds
        if before is not None and taken - before >= BUSY * since:
            self.seconds = self.asked_at = 0.0

    def _told(self) -> list[int]:
        return [path.stat().st_mtime_ns if path.exists() else 0 for path in self.files]


def hung(folder: Path) -> str:
    """That the process of this folder hung, and for how long; empty where it did not."""
    seconds = read(folder / STATUS, {}).get("hung")
    return f"hung for {duration(seconds)}" if seconds is not None else ""
