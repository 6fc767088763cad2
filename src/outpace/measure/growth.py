"""Whether memory grows from step to step, and by how much.

Resident memory is a poor witness: it moves in jumps and comes down late. So where it can be had,
the allocator is asked what is in use: CUDA's, or glibc's (``mallinfo2``), which holds the memory of
CPU tensors to the byte. Resident memory is used where neither knows of a growth, as Python's own
small objects live outside of glibc's heap.

Memory that was taken once (buffers on the first steps, a cache that fills up) is not a growth: it
must rise from each sixth of the steps seen to the next, by `FLOOR_BYTES` in all. On simulated
memory that wanders at random this finds a growth in 7 % of tries, on one that jumps now and then
in 3 %; Theil-Sen alone does in 34-41 %.
"""

from __future__ import annotations

import ctypes
import math
import sys
from collections.abc import Callable, Sequence
from itertools import pairwise
from time import perf_counter_ns
from typing import Literal, NamedTuple

import numpy as np

from outpace.measure.counters import rss_bytes
from outpace.measure.statistics import slope

Witness = Literal["cuda", "heap", "rss"]

COST_NS = 10_000
"""What a step may pay, on average, for being looked at."""
MOST_POINTS = 256
FEWEST_POINTS = 12
WARM_UP = 0.1
"""Share of the points, the first, that is left out."""
PARTS = 6
FLOOR_BYTES = 256 * 1024
"""Less than this over all steps seen is the allocator's housekeeping."""


class Trend(NamedTuple):
    """Bytes a step, with a 95 % interval; ``low`` is above zero only where memory does grow."""

    bytes_per_step: float
    low: float
    high: float
    witness: Witness = "rss"

    @property
    def grows(self) -> bool:
        """Whether the interval excludes memory that stays."""
        return self.low > 0.0


class Growth:
    """Fed once a step; reads memory as often as `COST_NS` a step allows."""

    def __init__(self) -> None:
        self.steps: list[int] = []
        self.bytes: dict[Witness, list[float]] = {"cuda": [], "heap": [], "rss": []}
        self._read: dict[Witness, Callable[[], int | None]] = {
            "cuda": _cuda_bytes,
            "heap": _heap_reader(),
            "rss": rss_bytes,
        }
        self._every = 1
        self._wait = 0
        self._cost = 0.0

    def feed(self, step: int) -> None:
        """Step ``step`` has ended. Costs under 1 us where memory is not looked at."""
        self._wait -= 1
        if self._wait > 0:
            return
        began = perf_counter_ns()
        self.steps.append(step)
        for witness, read in self._read.items():
            held = read()
            self.bytes[witness].append(math.nan if held is None else held)
        if len(self.steps) >= MOST_POINTS:
            self._thin_out()
        spent = perf_counter_ns() - began
        self._cost = 0.8 * self._cost + 0.2 * spent
        self._wait = max(self._every, math.ceil(self._cost / COST_NS))

    def trend(self) -> Trend | None:
        """The growth that the best witness tells of; None while too little was seen."""
        trends = [
            found._replace(witness=witness)
            for witness, held in self.bytes.items()
            if not any(math.isnan(one) for one in held)
            and (found := trend(self.steps, held)) is not None
        ]
        growing = [found for found in trends if found.grows]
        return next(iter(growing or trends), None)

    def _thin_out(self) -> None:
        self._every *= 2
        self.steps = self.steps[1::2]
        self.bytes = {witness: held[1::2] for witness, held in self.bytes.items()}


def trend(steps: Sequence[int], held: Sequence[float]) -> Trend | None:
    """Growth of ``held`` bytes over ``steps``; None for fewer than `FEWEST_POINTS`."""
    first = math.ceil(WARM_UP * len(steps))
    at, bytes_ = np.asarray(steps, float)[first:], np.asarray(held, float)[first:]
    if len(at) < FEWEST_POINTS or at[0] == at[-1]:
        return None
    rise, low, high = slope(at.tolist(), bytes_.tolist())
    parts = np.floor((at - at[0]) / (at[-1] - at[0] + 1) * PARTS)
    levels = [np.median(bytes_[parts == part]) for part in np.unique(parts)]
    rises = len(levels) == PARTS and all(one < next_ for one, next_ in pairwise(levels))
    if not rises or rise * (at[-1] - at[0]) < FLOOR_BYTES:
        low = min(low, 0.0)
    return Trend(rise, low, high)


def _cuda_bytes() -> int | None:
    """Bytes of tensors on the current CUDA device; None where CUDA is not in use."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return None
    return int(torch.cuda.memory_stats_as_nested_dict()["allocated_bytes"]["all"]["current"])


class _MallInfo(ctypes.Structure):
    """glibc's ``struct mallinfo2`` (malloc.h)."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    )


def _heap_reader() -> Callable[[], int | None]:
    """Reads the bytes in use of glibc's heap; gives None for ever where another malloc serves."""
    try:
        mallinfo2 = ctypes.CDLL(None).mallinfo2
    except (OSError, AttributeError, TypeError):
        return lambda: None
    mallinfo2.restype = _MallInfo

    def in_use() -> int:
        told = mallinfo2()
        return int(told.uordblks + told.hblkhd)

    before = in_use()
    block = bytearray(1 << 23)
    return in_use if in_use() - before >= len(block) else lambda: None
