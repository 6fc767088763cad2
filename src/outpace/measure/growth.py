"""Whether memory grows from step to step, and by how much.

Resident memory, the process's own without files that it maps, is a poor witness: it moves in jumps
and comes down late. So where it can be had, the allocator is asked what is in use: CUDA's, or
glibc's (``mallinfo2``), which holds the memory of CPU tensors to the byte. Resident memory is used
where neither knows of a growth, as Python's own small objects live outside of glibc's heap. It also grows
where memory that was taken before is written to for the first time: by no more than that.

Memory that was taken once (buffers on the first steps, a cache that fills up) is not a growth: it
must rise from each sixth of the steps seen to the next, by `FLOOR_BYTES` in all, and about as much in
each (`EVEN`). Theil-Sen alone finds a growth in 34-41 % of simulated memory that wanders. From 18 to
90 points this does, by the heap's rule and by that of resident memory, in 2 and 0.5 % where it
wanders, in 1 and 0.2 % where it came in three jumps (17-22 % without evenness), in 47 and 7 % where
it still fills up (95 %). A megabyte a step with a third of noise is found in all, one of sizes from
nothing to twice that in 95 and 70 % by 18 points, in 100 and 90 % by 30.
"""

from __future__ import annotations

import ctypes
import math
import sys
from collections.abc import Callable, Sequence
from time import perf_counter_ns
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from outpace.measure.counters import own_bytes
from outpace.measure.statistics import slope

Witness = Literal["cuda", "heap", "rss"]

COST_NS = 4_000
COST_SHARE = 0.0005
"""What a step may pay each witness, on average."""
MOST_POINTS = 128
FEWEST_POINTS: dict[Witness, int] = {"cuda": 12, "heap": 12, "rss": 18}
WARM_UP = 0.1
"""Share of the points, the first, that is left out."""
UNANSWERED = 64
"""Steps after which a witness that knew nothing is asked again."""
PARTS = 6
EVEN: dict[Witness, float] = {"cuda": 0.3, "heap": 0.3, "rss": 0.5}
"""Share of the mean rise a step that each sixth has at least; resident memory comes in jumps."""
FLOOR_BYTES = 256 * 1024
"""Less than this over all steps seen is the allocator's housekeeping."""


class Trend(NamedTuple):
    """Bytes a step, with the lower limit of a 95 % interval: it is above zero only where memory does grow."""

    bytes_per_step: float
    low: float
    witness: Witness
    room: float | None = None
    """bytes that it may still grow by: those that were taken and not written to yet; None: no such limit"""

    @property
    def grows(self) -> bool:
        """Whether the interval excludes memory that stays."""
        return self.low > 0.0


class Series:
    """What one witness told, read as seldom as its cost and the length of the run ask for."""

    def __init__(self, read: Callable[[], int | None]) -> None:
        self.read = read
        self.steps: list[int] = []
        self.bytes: list[float] = []
        self.due = 0
        self._every = 1
        self._cost = min(self._timed()[1] for _ in range(3))

    def take(self, step: int, allowance_ns: float) -> None:
        """Read, and set the step when it is ``due`` again for a step to pay ``allowance_ns``."""
        held, spent = self._timed()
        if held is not None:
            self.steps.append(step)
            self.bytes.append(held)
        if len(self.steps) >= MOST_POINTS:
            self._every *= 2
            self.steps, self.bytes = self.steps[1::2], self.bytes[1::2]
        self._cost += 0.2 * (min(spent, 4 * self._cost) - self._cost)
        wait = max(self._every, math.ceil(self._cost / allowance_ns))
        self.due = step + (wait if held is not None else max(wait, UNANSWERED))

    def _timed(self) -> tuple[int | None, float]:
        began = perf_counter_ns()
        held = self.read()
        return held, perf_counter_ns() - began


class Growth:
    """Fed once a step; each witness may take `COST_NS` of it or `COST_SHARE`, whichever is more.

    glibc takes 1 us to tell, but milliseconds where its heap is in pieces: it is then asked seldom.
    """

    def __init__(self) -> None:
        self.series: dict[Witness, Series] = {
            "cuda": Series(_cuda_bytes),
            "heap": Series(_heap_reader()),
            "rss": Series(own_bytes),
        }
        self._began = perf_counter_ns()
        self._fed = 0
        self._due = 0

    def feed(self, step: int) -> None:
        """Step ``step`` has ended; steps count up."""
        self._fed += 1
        if step < self._due:
            return
        allowance = max(COST_NS, COST_SHARE * (perf_counter_ns() - self._began) / self._fed)
        for series in self.series.values():
            if step >= series.due:
                series.take(step, allowance)
        self._due = min(series.due for series in self.series.values())

    def trend(self) -> Trend | None:
        """The growth that the best witness tells of; None while too little was seen."""
        trends = [
            found
            for witness, series in self.series.items()
            if (found := trend(series.steps, series.bytes, witness)) is not None
        ]
        growing = [found for found in trends if found.grows]
        found = next(iter(growing or trends), None)
        if found is None or found.witness != "rss":
            return found
        return found._replace(room=self._room())

    def _room(self) -> float | None:
        """What glibc has given away beyond what is resident: as of an array of zeros that is filled bit by
        bit, where resident memory grows alone. Where that is less than came by now it may be another's.
        """
        heap, there = self.series.get("heap"), self.series["rss"].bytes
        room = heap.bytes[-1] - there[-1] if heap is not None and heap.bytes else 0.0
        return room if room > there[-1] - there[0] else None


def trend(steps: Sequence[int], held: Sequence[float], witness: Witness) -> Trend | None:
    """Growth of ``held`` bytes over ``steps``; None for fewer than `FEWEST_POINTS`."""
    first = math.ceil(WARM_UP * len(steps))
    at, bytes_ = np.asarray(steps, float)[first:], np.asarray(held, float)[first:]
    if len(at) < FEWEST_POINTS[witness] or at[0] == at[-1]:
        return None
    rise, low, _ = slope(at.tolist(), bytes_.tolist())
    if not _rises_throughout(at, bytes_, EVEN[witness]) or rise * (at[-1] - at[0]) < FLOOR_BYTES:
        low = min(low, 0.0)
    return Trend(rise, low, witness)


def _rises_throughout(
    at: npt.NDArray[np.float64], held: npt.NDArray[np.float64], even: float
) -> bool:
    """Whether there is more in each sixth than in the one before, by a share of the mean rise."""
    sixth = np.floor((at - at[0]) / (at[-1] - at[0] + 1) * PARTS)
    parts = [sixth == each for each in np.unique(sixth)]
    if len(parts) < PARTS:
        return False
    more = np.diff([np.median(held[part]) for part in parts])
    rises = more / np.diff([np.median(at[part]) for part in parts])
    return bool(rises.min() > even * max(0.0, rises.mean()))


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


def _mallinfo2() -> Callable[[], _MallInfo] | None:
    try:
        function = ctypes.CDLL(None).mallinfo2
    except (OSError, AttributeError, TypeError):
        return None
    function.restype = _MallInfo
    return function


def heap_free_bytes() -> int:
    """What glibc keeps of freed memory; 0 where another malloc serves."""
    mallinfo2 = _mallinfo2()
    return int(mallinfo2().fordblks) if mallinfo2 is not None else 0


def _heap_reader() -> Callable[[], int | None]:
    """Reads the bytes in use of glibc's heap; gives None for ever where another malloc serves."""
    mallinfo2 = _mallinfo2()
    if mallinfo2 is None:
        return lambda: None

    def in_use() -> int:
        told = mallinfo2()
        return int(told.uordblks + told.hblkhd)

    before = in_use()
    block = bytearray(1 << 16)  # one that is mapped for itself would change how glibc trims
    return in_use if in_use() - before >= len(block) else lambda: None
