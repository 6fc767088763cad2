"""Cheap counters of this process and of others: CPU time, bytes read, memory.

Most cost one or two system calls (1-10 us) and give None where the platform does not tell or the process
is gone; `page_faults`, `system_s` and `last_level_cache` give a number in any case. A process's CPU time is
since it began, all its threads together.
"""

from __future__ import annotations

import os
import time
from functools import lru_cache
from pathlib import Path

from outpace.measure.machine import usable_cores

CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
OF_A_CORE = 12 * 2**20
"""of a cache that cores share: the most that processors have. A virtual machine of two cores is told all of
its socket's: 260 MiB, seen here, of which others' cores have most
"""

CPUCLOCK_SCHED = 2
"""What the kernel calls the clock that counts a process's time on the CPU (posix-timers.h)."""


def page_faults() -> int:
    """Pages of memory that the system had to fill for this process; 0 where it does not tell."""
    try:
        import resource
    except ImportError:  # Windows
        return 0
    return int(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)


def system_s() -> float:
    """CPU seconds that the system has worked for this process: filling pages, reading, waking."""
    try:
        import resource
    except ImportError:  # Windows
        return os.times().system
    return resource.getrusage(resource.RUSAGE_SELF).ru_stime


def cores_busy_s() -> float | None:
    """CPU seconds that the cores this process may use have worked for anybody; None if not told.

    Nor under a quota: a container may use any core, and those of all the others run there too.
    """
    try:
        mine = {f"cpu{core}" for core in os.sched_getaffinity(0)}
        if usable_cores() < len(mine):
            return None
        with open("/proc/stat") as file:
            rows = [line.split() for line in file if line.startswith("cpu")]
        ticks = os.sysconf("SC_CLK_TCK")
    except (OSError, AttributeError, ValueError):
        return None
    # user nice system idle iowait irq softirq steal
    return sum(int(n) for r in rows if r[0] in mine for n in (*r[1:4], *r[6:9])) / ticks


def cpu_ns(pid: int) -> int | None:
    """CPU time of another process, to the nanosecond by its CPU clock, else in ticks from /proc."""
    clock_gettime_ns = getattr(time, "clock_gettime_ns", None)
    if clock_gettime_ns is not None and pid > 0:
        try:
            return int(clock_gettime_ns((~pid << 3) | CPUCLOCK_SCHED))
        except OSError:
            pass
    return _cpu_ns_from_proc(pid)


def disk_waits_s() -> float | None:
    """Seconds in which anything on this machine waited for a disk; None where that is not told.

    It is the kernel's pressure stall information (Linux 4.20 and later, where it is not switched off).
    """
    try:
        with open("/proc/pressure/io", "rb") as file:
            return int(file.readline().rpartition(b"total=")[2]) / 1e6
    except (OSError, ValueError):
        return None


def disk_read_bytes() -> int | None:
    """Bytes that came from disks since the machine began, for anybody; None where that is not told."""
    try:
        with open("/proc/vmstat", "rb") as file:
            kib = next(line for line in file if line.startswith(b"pgpgin "))
        return 1024 * int(kib.split()[1])
    except (OSError, ValueError, StopIteration):
        return None


def rss_bytes(pid: int | str = "self") -> int | None:
    """Resident memory, shared pages and those of files included."""
    pages = _resident(pid)
    return pages[0] if pages is not None else None


def own_bytes() -> int | None:
    """Resident memory of this process alone: without files that are mapped, which can go again."""
    pages = _resident("self")
    return pages[0] - pages[1] if pages is not None else None


def held_bytes() -> int | None:
    """Resident memory less pages of mapped files, which go again where memory is short.

    What it shares with its workers counts; all of it counts where the system does not tell of files.
    """
    resident = rss_bytes()
    if resident is None:
        return None
    try:
        with open("/proc/self/status", "rb") as file:
            of_files = next(line for line in file if line.startswith(b"RssFile:"))
        return max(0, resident - 1024 * int(of_files.split()[1]))
    except (OSError, ValueError, StopIteration):
        return resident


def _resident(pid: int | str) -> tuple[int, int] | None:
    """Bytes that are resident, and those of them that belong to files or are shared."""
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            _, resident, shared, *_ = file.read().split()
        page = os.sysconf("SC_PAGE_SIZE")
        return int(resident) * page, int(shared) * page
    except (OSError, ValueError, AttributeError):
        return None


@lru_cache(maxsize=1)
def last_level_cache() -> int:
    """Bytes of the CPU's largest cache, at most `OF_A_CORE` for each core that is ours; 32 MiB where the
    system does not tell.
    """
    sizes = []
    for path in CACHES.glob("index*/size"):
        try:
            sizes.append(int(path.read_text().strip().removesuffix("K")) * 1024)
        except (OSError, ValueError):
            continue
    return min(max(sizes, default=32 * 2**20), OF_A_CORE * usable_cores())


def _cpu_ns_from_proc(pid: int) -> int | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            after_name = file.read().rpartition(b")")[2].split()
        ticks = int(after_name[11]) + int(after_name[12])
        return ticks * 1_000_000_000 // os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, AttributeError):
        return None
