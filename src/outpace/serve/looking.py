"""What it takes to make a batch: a few are made, alone and by two threads at once."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Any, NamedTuple

from outpace.seams.proc import waited_ns
from outpace.serve.allocating import page_faults_of_thread
from outpace.serve.crossing import crossing_s
from outpace.serve.executors import AS_MADE, fetch_threads
from outpace.serve.making import Arrival, BatchMaker, Made, Request, bytes_of

LOOK_S = 0.2
"""seconds of making batches, alone, by two threads, and alone again"""
FIRST_S = 0.15
"""seconds in which they are made for the first time, before that"""
LEAST_S = 0.03
"""seconds of them that are spent however short an epoch is"""
CHEAP_S = 3e-4
"""a batch made in less is not handed over: little more than that could be gained"""
BY_THREAD_S, BY_PROCESS_S = 1.5e-4, 3e-4
"""of a batch that comes from a thread or a process, besides its bytes"""
IPC_S_PER_BYTE = 3e-10
"""CPU seconds of writing into a place in shared memory that is there already"""


@dataclass(frozen=True)
class Facts:
    """What making a batch takes. ``scaling``: batches a second by two threads over those by one; None
    where that was not measured, and is taken for one.
    """

    wall_s: float
    cpu_s: float
    scaling: float | None
    batch_bytes: int
    """of the largest"""
    cores: int
    crossing_s: float = 0.0
    """between processes, by its tensors: see `outpace.serve.crossing`"""
    arrival_s: float = 0.0
    """part of the wall time that is spent in this process wherever it was made"""
    faults: float = 0.0
    """pages of fresh memory"""

    @property
    def held_s(self) -> float:
        """CPU seconds of a batch during which no other thread can make one: by `queued`, two threads make
        2 / (1 + share squared) times as many as one.
        """
        if self.cores < 2:
            return 0.0
        # Waiting is not held: two threads that only wait scale by two.
        share = math.sqrt(min(1.0, max(0.0, 2 / (self.scaling or 1.0) - 1)))
        return min(self.cpu_s, share * self.wall_s)

    @property
    def ipc_s(self) -> float:
        """Seconds that a batch takes from one process to another, on both sides together."""
        return BY_PROCESS_S + self.crossing_s + IPC_S_PER_BYTE * self.batch_bytes


def look(
    maker: BatchMaker,
    requests: Sequence[Request],
    cores: int,
    most: int,
    arrival: Arrival = AS_MADE,
    *,
    threads: bool = True,
) -> Facts:
    """Make batches alone, then by two threads at once, so many; cheap ones alone only, and all where
    ``threads`` are not to be chosen.
    """
    batch = maker(requests[0]).batch
    sizes, arrivals = [bytes_of(batch)], list[float]()

    def whole(request: Request) -> Made:
        made = maker(request)
        if len(sizes) < len(requests):  # the first time
            sizes.append(bytes_of(made.batch))
        begun = time.perf_counter()
        made = arrival(made)
        arrivals.append(time.perf_counter() - begun)
        return made

    # In threads as workers are: with torch's own beside it a batch would take another time.
    pool = fetch_threads(2) if threads else None

    def alone(*args: Any) -> Timed:
        return (
            pool.submit(_timed, whole, *args).result() if pool is not None else _timed(whole, *args)
        )

    # What is read for the first time is slower, and of a packed set its checksums are looked at.
    first = alone(requests[1:] or requests, len(requests), FIRST_S)
    known = requests[: 1 + first.batches]
    arrivals.clear()
    warm, scaling = alone(known, most), None
    if pool is not None:
        if cores > 1 and warm.wall_s > CHEAP_S:
            both = list(pool.map(lambda some: _timed(whole, some, most), (known, known[::-1])))
            warm = min(warm, alone(known, most))  # the one that was less disturbed
            scaling = min(2.0, max(0.5, sum(warm.wall_s / each.wall_s for each in both)))
        pool.shutdown()
    # Files that are read now may be waited for where those before were not.
    wall = max(warm.wall_s, warm.cpu_s + first.wall_s - first.cpu_s)
    crossing, arrival_s = crossing_s(batch), sum(arrivals) / max(1, len(arrivals))
    return Facts(wall, warm.cpu_s, scaling, max(sizes), cores, crossing, arrival_s, warm.faults)


class Timed(NamedTuple):
    """Of a batch: seconds as if no one else wanted the cores, CPU seconds and fresh pages; of how many."""

    wall_s: float
    cpu_s: float
    faults: float
    batches: int


def _timed(
    make: Callable[[Request], Made], requests: Sequence[Request], most: int, seconds: float = LOOK_S
) -> Timed:
    """Of ``requests`` made in turn for so long; once there are ``most``, for LEAST_S only."""
    rounds, faults, count = cycle(requests), page_faults_of_thread(), 0
    begun, cpu, waited = time.perf_counter(), time.thread_time(), waited_ns()
    while not count or time.perf_counter() - begun < (seconds if count < most else LEAST_S):
        make(next(rounds))
        count += 1
    cpu = time.thread_time() - cpu
    wall = time.perf_counter() - begun - (waited_ns() - waited) / 1e9
    faults = page_faults_of_thread() - faults
    return Timed(max(wall, cpu) / count, cpu / count, faults / count, count)
