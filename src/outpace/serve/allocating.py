"""Freed memory kept for the next batch: worker processes that do not give it back to the system.

A batch of large images takes and returns megabytes all the time. The C library gives large blocks back at
once, and the system fills each page with zeros when it gives it out again. glibc can be told to keep
them (mallopt(3)), from then on and for good: so only worker processes are told, which end with the
loader. With another C library nothing is done.
"""

from __future__ import annotations

import ctypes
import platform

from outpace.records.evidence import MOST_A_PAGE_S

WORTH = 0.10
"""share of the time of a batch that fresh pages are to take for keeping them to be tried, and gain from
which it is done"""
TRIM_THRESHOLD, TOP_PAD, MMAP_THRESHOLD = -1, -2, -3
"""numbers of glibc's malloc.h"""
LARGEST = (1 << 30, 1 << 25)
"""blocks up to this size are kept: of the second size where glibc does not take the first"""


def keep_freed() -> None:
    """Have this process keep the memory that it frees, where its C library is glibc."""
    if platform.libc_ver()[0] != "glibc":
        return
    tell = ctypes.CDLL(None).mallopt
    any(tell(MMAP_THRESHOLD, size) for size in LARGEST)  # until it takes one
    tell(TRIM_THRESHOLD, 2**31 - 1)
    tell(TOP_PAD, 1 << 26)


def page_faults_of_thread() -> int:
    """Pages of fresh memory that this thread has been given so far; 0 where that is not told."""
    try:
        import resource

        return resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
    except (ImportError, AttributeError):
        return 0


def worth_trying(faults: float, wall_s: float) -> bool:
    """Whether a batch takes so many fresh pages that keeping them could pay."""
    return platform.libc_ver()[0] == "glibc" and faults * MOST_A_PAGE_S >= WORTH * wall_s
