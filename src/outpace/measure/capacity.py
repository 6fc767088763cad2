"""The limit on memory that leaves a process the least, and how much of it is taken."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import torch

from outpace.measure.counters import held_bytes
from outpace.measure.growth import heap_free_bytes
from outpace.measure.machine import free_memory, memory_limit

RLIMITS = {"RLIMIT_DATA": "VmData", "RLIMIT_AS": "VmSize"}
"""limits of a process (getrlimit(2)), and what counts against each in /proc/self/status"""


class Limit(NamedTuple):
    """Bytes that may be used, and bytes of them that are."""

    bytes: int
    used: int


def tightest(device: str, status: Path = Path("/proc/self/status")) -> Limit:
    """Of a type of device; on the CPU of the machine, its cgroups and the process's own limits.

    What glibc keeps of freed memory is not in use, as it is given out again; nor are pages of files that
    are mapped, as of a data set in `np.memmap`.
    """
    if device == "cuda":
        return _of_gpu()
    free = heap_free_bytes()
    found = (Limit(limit, max(0, used - free)) for limit, used in _of_process(status))
    return min(found, key=lambda limit: limit.bytes - limit.used)


def _of_process(status: Path) -> Iterator[tuple[int, int]]:
    most = memory_limit()
    yield most, max(held_bytes() or 0, most - free_memory())  # workers and others take of it too
    try:
        import resource

        lines = dict(line.split(":", 1) for line in status.read_text().splitlines() if ":" in line)
        for name, counted in RLIMITS.items():
            soft, _ = resource.getrlimit(getattr(resource, name))
            if soft != resource.RLIM_INFINITY:
                yield soft, int(lines[counted].split()[0]) * 1024
    except (ImportError, OSError, KeyError, ValueError):
        return


def _of_gpu() -> Limit:
    """Less what other processes take, and no more than this one's share."""
    free, total = torch.cuda.mem_get_info()
    ours = torch.cuda.memory_reserved()
    told = getattr(torch.cuda, "get_per_process_memory_fraction", lambda: 1.0)  # of torch 2.7
    share = told()
    return Limit(min(free + ours, int(share * total)), torch.cuda.memory_allocated())
