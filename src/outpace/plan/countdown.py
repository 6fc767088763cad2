"""The time that is left, whatever happens to the process or to the clocks.

A duration is counted on a clock that nobody sets and that goes on while the process is stopped or
the machine sleeps. A time of day is a time of day: where the machine's clock is set, it moves too.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path


def since_boot() -> float:
    """Seconds on a clock that all processes of the machine share and nobody sets."""
    # On Linux the monotonic clock stands still while the machine sleeps; elsewhere Python's own does.
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def boot_id() -> str:
    """By which one start of one machine is told from all others; "" where the system has none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        return ""


def began_here(began: float, boot: str, at: float) -> float:
    """When something began, by this machine's `since_boot`.

    ``began``: by that of the machine with the id ``boot``; ``at``: by the calendar's clock, which two
    machines have in common.
    """
    return began if boot == boot_id() else since_boot() - (time.time() - at)


class Countdown:
    """Seconds from ``began`` (by `since_boot`) on: so many, or until a time by the calendar's clock."""

    def __init__(
        self,
        began: float,
        *,
        seconds: float | None = None,
        at: float | None = None,
        now: Callable[[], float] = since_boot,
        wall: Callable[[], float] = time.time,
    ) -> None:
        assert (seconds is None) != (at is None)
        self.began, self.seconds, self.at = began, seconds, at
        self.now, self.wall = now, wall

    def elapsed(self) -> float:
        """Seconds since the begin."""
        return self.now() - self.began

    def left(self) -> float:
        """Seconds to the end; negative once it is past."""
        if self.seconds is not None:
            return self.seconds - self.elapsed()
        assert self.at is not None
        return self.at - self.wall()
