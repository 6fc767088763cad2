"""How a batch is made from a data set: in the training process or in worker processes.

Each DataLoader's fetches are counted by themselves: a validation's batches may cost something else.
Workers write what they measure into memory that they share with the training process; with the
"spawn" start method there is none, and only the waiting for batches is known.

Time off the CPU is the wall time of a fetch less its CPU time and less its time in the run queue
(from /proc/thread-self/schedstat), so that a busy machine is not mistaken for slow storage; and less the
CPU time of the process's other threads, as those that a library decodes tables with, while the
training waits for the fetch. Looking that up costs some 50 us, so quick fetches are looked at one in many.
"""

from __future__ import annotations

import functools
import mmap
import os
from dataclasses import dataclass
from threading import get_ident
from time import perf_counter_ns, process_time_ns, thread_time_ns
from typing import Any

from torch.utils.data import get_worker_info
from torch.utils.data._utils import fetch as torch_fetch

from outpace.seams.decode import DecodeSeam
from outpace.seams.host import Host
from outpace.seams.in_place_of import Replaced
from outpace.seams.proc import bytes_read, waited_ns
from outpace.seams.setup import Setup

LOADERS = 16
"""DataLoaders that are told apart; those made later count together"""
SLOTS = 65
FIELDS = ("batches", "wall", "collate", "decode", "looked", "looked_wall", "cpu", "beside",
          "queued", "read_bytes")  # fmt: skip
WIDTH = len(FIELDS)
LOOK_NS = 25_000_000
"""fetching time after which one fetch is looked at closely"""


@dataclass
class Fetches:
    """Totals over all fetches so far; nanoseconds, bytes, counts."""

    batches: float
    wall: float
    collate: float
    decode: float
    looked: float
    """fetches that were looked at closely; the following are of these alone"""
    looked_wall: float
    cpu: float
    beside: float
    """CPU time of other threads meanwhile"""
    queued: float
    read_bytes: float


class FetchSeam:
    """Stands at the fetchers that DataLoader uses in whichever process."""

    name = "fetch"

    def __init__(self, host: Host, decode: DecodeSeam) -> None:
        self.host = host
        self.decode = decode
        self.replaced = Replaced()
        cells = memoryview(mmap.mmap(-1, LOADERS * SLOTS * WIDTH * 8)).cast("d")
        rows = [cells[i * WIDTH : (i + 1) * WIDTH] for i in range(LOADERS * SLOTS)]
        self.rows = [rows[i * SLOTS : (i + 1) * SLOTS] for i in range(LOADERS)]
        """by DataLoader: one for this process, one for each worker"""
        self.pid = os.getpid()
        self.in_worker: Any = None
        """called once in each worker process, to start what watches there"""
        self.met_worker = 0
        self.next_look: dict[tuple[int, int], float] = {}
        """of each DataLoader and worker: fetching nanoseconds from which on one is looked at closely"""

    def install(self) -> None:
        """Put the seam in."""
        self.replaced.put(torch_fetch._BaseDatasetFetcher, "__init__", self.numbered)
        for owner in (torch_fetch._MapDatasetFetcher, torch_fetch._IterableDatasetFetcher):
            self.replaced.put(owner, "fetch", self.wrap)

    def remove(self) -> None:
        """Take it out."""
        self.replaced.put_all_back()

    def reconcile(self, setup: Setup) -> None:
        """Nothing here is run in another way."""

    def totals(self, loader: int, *, workers: bool) -> Fetches:
        """What was measured of a DataLoader's fetches, in its workers or in the training process."""
        rows = self.rows[counted_as(loader)]
        return Fetches(*(sum(c) for c in zip(*(rows[1:] if workers else rows[:1]), strict=True)))

    def numbered(self, original: Any) -> Any:
        """Fetchers know the DataLoader whose iterator is being made; in a worker, as it was forked."""
        host = self.host

        @functools.wraps(original)
        def __init__(fetcher: Any, *args: Any, **kwargs: Any) -> None:
            original(fetcher, *args, **kwargs)
            fetcher._outpace_loader = counted_as(host.making)

        return __init__

    def wrap(self, original: Any) -> Any:
        """A fetch with its parts timed."""
        seam, rows, phases = self, self.rows, self.host.phases

        @functools.wraps(original)
        def fetch(fetcher: Any, index: Any) -> Any:
            if phases.resting:
                return original(fetcher, index)
            info = get_worker_info()
            slot = 0 if info is None else min(info.id + 1, SLOTS - 1)
            at = getattr(fetcher, "_outpace_loader", LOADERS - 1), slot
            row = rows[at[0]][slot]
            if info is not None and seam.met_worker != os.getpid():
                seam.met_worker = os.getpid()
                seam.host.guard("fetch", seam.enter_worker)
            if "_outpace" not in fetcher.__dict__:
                fetcher._outpace = True
                fetcher.collate_fn = seam.timed_collate(fetcher.collate_fn, row)
            decode = seam.decode
            decode.refresh(fetches=True)
            decoded, images = decode.nanoseconds, decode.images
            close = row[1] >= seam.next_look.get(at, 0.0)
            read = queued = cpu = whole = 0.0
            if close:
                read, queued, whole, cpu = (
                    bytes_read(),
                    waited_ns(),
                    process_time_ns(),
                    thread_time_ns(),
                )
            begun = perf_counter_ns()
            try:
                return original(fetcher, index)
            finally:
                wall = perf_counter_ns() - begun
                row[0] += 1
                row[1] += wall
                if decode.images != images:
                    row[3] += decode.nanoseconds - decoded
                if close:
                    row[4] += 1
                    row[5] += wall
                    own, every = thread_time_ns() - cpu, process_time_ns() - whole
                    row[6] += own
                    if info is not None or get_ident() == phases.owner:  # else it is the training's
                        row[7] += max(0.0, every - own)
                    row[8] += waited_ns() - queued
                    row[9] += bytes_read() - read
                    seam.next_look[at] = row[1] + LOOK_NS

        return fetch

    def enter_worker(self) -> None:
        """A worker process runs its first fetch."""
        if self.in_worker is not None:
            self.in_worker()

    def timed_collate(self, original: Any, row: Any) -> Any:
        """A collate function that is timed into ``row``."""
        phases = self.host.phases

        def collate(data: Any) -> Any:
            if phases.resting:
                return original(data)
            start = perf_counter_ns()
            try:
                return original(data)
            finally:
                row[2] += perf_counter_ns() - start

        return collate


def counted_as(loader: int) -> int:
    """The number that a DataLoader's fetches are counted under."""
    return min(loader, LOADERS - 1)
