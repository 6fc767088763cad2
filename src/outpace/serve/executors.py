"""Batches made ahead, in order: in the training's own thread, in threads, or in worker processes.

Each worker makes whole batches: to hand over single samples doubles the CPU time of cheap ones. What
follows on a batch (`Arrival`) is done where it arrives in this process: by the thread that made it, or
where it comes out of a worker process.
"""

from __future__ import annotations

import contextlib
import gc
import shutil
import threading
import warnings
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal, Protocol, final

import numpy as np
import torch
from torch.utils.data import DataLoader

from outpace.errors import DataError
from outpace.measure.machine import local_ranks
from outpace.serve.allocating import keep_freed
from outpace.serve.crossing import SMALL, Packer, stacked_in_own_memory, unpacked
from outpace.serve.making import Arrival, BatchMaker, Made, Request
from outpace.serve.places import SLACK, SPARE, Places

Kind = Literal["none", "threads", "processes"]
SHARED = Path("/dev/shm")
SHARE = 0.5
"""of free shared memory that batches on their way may take"""
AS_MADE = Arrival()


class Executor(Protocol):
    """Makes the batches of requests, in order."""

    workers: int

    def made(self, requests: Iterable[Request]) -> Iterator[Made]:
        """Each request's batch."""

    def resize(self, workers: int, depth: int) -> None:
        """From now on so many workers, and so many batches on their way."""

    def close(self) -> None:
        """End the workers."""


def start(
    kind: Kind,
    maker: BatchMaker,
    workers: int,
    depth: int,
    batch_bytes: int,
    arrival: Arrival = AS_MADE,
    *,
    keeps_freed: bool = False,
) -> Executor:
    """An executor at work. ``depth``: batches that may be on their way at once; ``keeps_freed``: worker
    processes keep the memory that they free.
    """
    if kind == "none" or workers == 0:
        return Here(maker, arrival)
    if kind == "threads":
        return Threads(maker, workers, depth, arrival)
    return Processes(maker, workers, depth, batch_bytes, arrival, keeps_freed=keeps_freed)


@final
class Here:
    """In the thread that draws."""

    workers = 0

    def __init__(self, maker: BatchMaker, arrival: Arrival = AS_MADE) -> None:
        self.maker, self.arrival = maker, arrival

    def made(self, requests: Iterable[Request]) -> Iterator[Made]:
        """Each request's batch, when it is drawn."""
        return (self.arrival(self.maker(request)) for request in requests)

    def resize(self, workers: int, depth: int) -> None:
        """Nothing to change."""

    def close(self) -> None:
        """Nothing to end."""


@final
class Threads:
    """In threads of this process, for samples that let other threads run while they are made."""

    def __init__(
        self, maker: BatchMaker, workers: int, depth: int, arrival: Arrival = AS_MADE
    ) -> None:
        self.maker, self.workers, self.depth, self.arrival = maker, workers, depth, arrival
        self.pool = fetch_threads(workers)

    def made(self, requests: Iterable[Request]) -> Iterator[Made]:
        """Each request's batch."""
        on_their_way: deque[Future[Made]] = deque()
        try:
            for request in requests:
                on_their_way.append(self.pool.submit(self._make, request))
                while len(on_their_way) >= max(1, self.depth):
                    yield on_their_way.popleft().result()
            while on_their_way:
                yield on_their_way.popleft().result()
        finally:
            for future in on_their_way:
                future.cancel()

    def _make(self, request: Request) -> Made:
        return self.arrival(self.maker(request))

    def resize(self, workers: int, depth: int) -> None:
        """What was asked for before is still made by the threads that were."""
        self.depth = depth
        if workers != self.workers:
            self.pool.shutdown(wait=False)
            self.pool, self.workers = fetch_threads(workers), workers

    def close(self) -> None:
        """End the threads after the batches that they are making."""
        self.pool.shutdown(wait=True, cancel_futures=True)


def fetch_threads(count: int) -> ThreadPoolExecutor:
    """Threads whose torch operations stay in them: teams of each would crowd the cores.

    torch keeps the number for a thread in that thread, and the one for threads to come in a global:
    so that is put back once all have begun. A thread takes the global's at its first parallel
    operation, whatever was set in it before, unless it has asked for the number by then.
    """
    everyone = threading.Barrier(count + 1)
    own = torch.get_num_threads()

    def begin() -> None:
        torch.set_num_threads(1)
        torch.get_num_threads()
        everyone.wait()

    pool = ThreadPoolExecutor(count, "outpace-serve", initializer=begin)
    try:
        for _ in range(count):
            pool.submit(int)
        everyone.wait()
    except RuntimeError:  # the system gives no more threads: those that wait are let go
        everyone.abort()
        pool.shutdown()
        raise
    finally:
        torch.set_num_threads(own)
    return pool


@final
class Processes:
    """In worker processes of a DataLoader, which lives as long as this."""

    def __init__(
        self,
        maker: BatchMaker,
        workers: int,
        depth: int,
        batch_bytes: int,
        arrival: Arrival = AS_MADE,
        *,
        keeps_freed: bool = False,
    ) -> None:
        self.workers, self.arrival = workers, arrival
        depth = max(workers, depth)
        self.by_pipe = depth * batch_bytes > SHARE * shared_free()
        ahead = max(1, depth // workers)
        self.places = None if arrival.pin else places_for(workers, ahead, batch_bytes)
        self.asked = Asked(self.places)
        with _no_warning():
            self.loader = self._loader(maker, workers, ahead, keeps_freed)

    def _loader(
        self, maker: BatchMaker, workers: int, ahead: int, keeps_freed: bool
    ) -> DataLoader[Any]:
        packer = Packer(places=self.places, by_pipe=self.by_pipe)
        return DataLoader(
            _InWorker(maker, packer),  # type: ignore[arg-type]
            batch_size=None,
            sampler=self.asked,
            num_workers=workers,
            prefetch_factor=ahead,
            collate_fn=_as_it_is,
            persistent_workers=True,
            pin_memory=self.arrival.pin,  # by a thread of this process
            worker_init_fn=_Begin(
                own_memory=self.by_pipe or self.places is not None, keeps_freed=keeps_freed
            ),
            generator=torch.Generator(),  # The training's own generator is not drawn from.
        )

    def made(self, requests: Iterable[Request]) -> Iterator[Made]:
        """Each request's batch."""
        self.asked.requests = requests
        with _no_warning():
            coming = iter(self.loader)
        while (made := self._next(coming)) is not None:
            yield self._arrived(made)

    def _next(self, coming: Iterator[Made]) -> Made | None:
        try:
            return next(coming, None)
        except RuntimeError as error:
            self.close()  # the next epoch begins with new ones
            raise DataError(
                f"worker processes cannot go on: {error}",
                "the system ends those that take too much memory: fewer workers=, or a smaller ram=",
            ) from error

    def _arrived(self, made: Made) -> Made:
        if made.error is not None:
            return made
        batch = unpacked(made.batch, own=not self.arrival.pin, places=self.places)
        return self.arrival._replace(pin=False)(made._replace(batch=batch))

    def resize(self, workers: int, depth: int) -> None:
        """Processes stay as many as they are: to start others costs more than it gives."""

    def close(self) -> None:
        """End the processes."""
        iterator = getattr(self.loader, "_iterator", None)
        if iterator is not None:
            with contextlib.suppress(Exception):
                iterator._shutdown_workers()
            self.loader._iterator = None


@contextlib.contextmanager
def _no_warning() -> Iterator[None]:
    """More workers than cores are meant, where they wait."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        yield


class Asked:
    """A sampler that gives the requests of the epoch at hand."""

    def __init__(self, places: Places | None) -> None:
        self.requests: Iterable[Request] = ()
        self.places = places

    def __iter__(self) -> Iterator[Request]:
        # Drawn from once workers have put away what is left of an epoch before.
        if self.places is not None:
            self.places.none_coming()
        yield from self.requests

    def __len__(self) -> int:
        raise TypeError("not known beforehand")


class _Begin:
    """What a worker process does first."""

    def __init__(self, *, own_memory: bool, keeps_freed: bool) -> None:
        self.own_memory, self.keeps_freed = own_memory, keeps_freed

    def __call__(self, worker: int) -> None:
        # A collection writes to each object that it looks at, and so copies the parent's pages.
        gc.freeze()
        if self.keeps_freed:
            keep_freed()
        if self.own_memory:
            stacked_in_own_memory()


class _InWorker:
    """The maker as a data set of requests, whose batches come as parcels."""

    def __init__(self, maker: BatchMaker, pack: Packer) -> None:
        self.maker, self.pack = maker, pack

    def __getitem__(self, request: Request) -> Made:
        made = self.maker(request)
        return made if made.error is not None else made._replace(batch=self.pack(made.batch))


def _as_it_is(made: Any) -> Any:
    return made


def places_for(workers: int, ahead: int, batch_bytes: int) -> Places | None:
    """For workers who are each ``ahead`` so many batches; None for small ones, or where shared memory
    has no room.
    """
    each = ahead + SPARE
    if batch_bytes <= SMALL or SLACK * workers * each * batch_bytes > SHARE * shared_free():
        return None
    return Places(workers, each, batch_bytes)


def shared_free() -> float:
    """This rank's share of the bytes of shared memory that are free; no limit where there is no such
    folder.
    """
    return shutil.disk_usage(SHARED).free / local_ranks() if SHARED.is_dir() else np.inf
