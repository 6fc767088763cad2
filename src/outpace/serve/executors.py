"""Batches made ahead, in order: in the training's own thread, in threads, or in worker processes.

Each worker makes whole batches: to hand over single samples doubles the CPU time of cheap ones. What
follows on a batch (`Arrival`) is done where it arrives in this process: by the thread that made it, or
where it comes out of a worker process.
"""

from __future__ import annotations

import contextlib
import math
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal, ParamSpec, Protocol, TypeVar, final

import torch

from outpace.serve.forks import tell_in_forks
from outpace.serve.making import Arrival, BatchMaker, Made, Request, bytes_of
from outpace.serve.processes import Processes
from outpace.serve.thread_state import AsHere

P = ParamSpec("P")
T = TypeVar("T")
Kind = Literal["none", "threads", "processes"]
AS_MADE = Arrival()
LEAST = 2
"""batches on their way: one is made while the training has the one before"""
RECENT = 32
"""batches of which the largest tells how large the next may be"""


class Executor(Protocol):
    """Makes the batches of requests, in order."""

    workers: int

    def made(self, requests: Iterable[Request]) -> Iterator[Made]:
        """Each request's batch."""

    def alive(self) -> bool:
        """Whether none of the workers has ended by itself."""

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
    most_bytes: float = math.inf,
) -> Executor:
    """An executor at work. ``depth``: batches that may be on their way at once, and ``most_bytes`` theirs
    together; ``keeps_freed``: worker processes keep the memory that they free.
    """
    if kind == "none" or workers == 0:
        return Here(maker, arrival)
    if kind == "threads":
        return Threads(maker, workers, depth, arrival, most_bytes=most_bytes)
    return Processes(
        maker, workers, depth, batch_bytes, arrival, keeps_freed=keeps_freed, most_bytes=most_bytes
    )


@final
class Here:
    """In the thread that draws."""

    workers = 0

    def __init__(self, maker: BatchMaker, arrival: Arrival = AS_MADE) -> None:
        self.maker, self.arrival = maker, arrival

    def made(self, requests: Iterable[Request]) -> Iterator[Made]:
        """Each request's batch, when it is drawn."""
        return (self.arrival(self.maker(request)) for request in requests)

    def alive(self) -> bool:
        """There is none."""
        return True

    def resize(self, workers: int, depth: int) -> None:
        """Nothing to change."""

    def close(self) -> None:
        """Nothing to end."""


@dataclass(eq=False)
class _OnItsWay:
    """A batch that threads of a process are to make. ``future``: once it is asked of them; ``bytes``: once it
    is made.
    """

    request: Request
    process: int
    future: Future[Made] | None = None
    bytes: int | None = None


@final
class Threads:
    """In threads of this process, for samples that let other threads run while they are made.

    The threads are asked for a batch as long as there is room for one as large as the largest of late. Where
    one turns out larger, those that none has begun are taken back.
    """

    def __init__(
        self,
        maker: BatchMaker,
        workers: int,
        depth: int,
        arrival: Arrival = AS_MADE,
        *,
        most_bytes: float = math.inf,
    ) -> None:
        self.maker, self.workers, self.depth, self.arrival = maker, workers, depth, arrival
        self.most_bytes = most_bytes
        self.sizes: deque[int] = deque([0], maxlen=RECENT)
        """bytes of the batches that were made last"""
        self.pool: ThreadPoolExecutor | None = fetch_threads(workers)
        self._lock = threading.RLock()
        tell_in_forks(self)
        _at_work.add(self)

    def made(self, requests: Iterable[Request]) -> Iterator[Made]:
        """Each request's batch."""
        on_their_way: deque[_OnItsWay] = deque()
        try:
            for request in requests:
                with self._lock:
                    on_their_way.append(_OnItsWay(request, os.getpid()))
                self._ask(on_their_way)
                while len(on_their_way) >= max(LEAST, self.depth):
                    yield self._taken(on_their_way)
            while on_their_way:
                yield self._taken(on_their_way)
        finally:
            for one in on_their_way:
                if one.process == os.getpid() and one.future is not None:
                    one.future.cancel()

    def _taken(self, on_their_way: deque[_OnItsWay]) -> Made:
        """The next batch; one that was not begun when the threads were ended is made now, and in a fork those
        that its parent's threads make: what they hold locked stays so there.
        """
        process = os.getpid()
        for one in on_their_way:
            if one.process != process:
                one.process, one.future, one.bytes = process, None, None
        made: Made | None = None
        while made is None:
            self._ask(on_their_way)
            future = on_their_way[0].future
            assert future is not None
            try:
                made = future.result()
            except CancelledError:
                for one in on_their_way:
                    if one.future is not None and one.future.cancelled():
                        one.future = None
        with self._lock:
            on_their_way.popleft()
        self._ask(on_their_way)
        return made

    def _ask(self, on_their_way: deque[_OnItsWay]) -> None:
        """For as many as there is room for, and for the next one in any case."""
        if all(one.future is not None for one in on_their_way):
            return
        if self.pool is None:
            self.pool = fetch_threads(self.workers)
        with self._lock:
            room = self._room(on_their_way)
            for one in on_their_way:
                if one.future is None:
                    room -= max(self.sizes)
                    if room < 0 and one is not on_their_way[0]:
                        return
                    one.future = self.pool.submit(self._make, one, on_their_way)

    def _room(self, on_their_way: deque[_OnItsWay]) -> float:
        """Bytes that are left by what is made, and what threads were asked for."""
        largest = max(self.sizes)
        sizes = (one.bytes or largest for one in on_their_way if one.future is not None)
        return self.most_bytes - sum(sizes)

    def _make(self, one: _OnItsWay, on_their_way: deque[_OnItsWay]) -> Made:
        made = self.arrival(self.maker(one.request))
        size = bytes_of(made.batch)
        with self._lock:
            one.bytes, larger = size, size > max(self.sizes)
            self.sizes.append(size)
            if larger:
                self._take_back(on_their_way)
        return made

    def _take_back(self, on_their_way: deque[_OnItsWay]) -> None:
        """What there is no room for any more; not the next one."""
        for one in tuple(on_their_way)[:0:-1]:
            if self._room(on_their_way) >= 0:
                return
            if one.future is not None and one.future.cancel():
                one.future = None

    def alive(self) -> bool:
        """Threads do not."""
        return True

    def resize(self, workers: int, depth: int) -> None:
        """What was asked for before is still made by the threads that were; where the system gives no more
        threads they stay as many.
        """
        if workers != self.workers and self.pool is not None:
            try:
                pool = fetch_threads(workers)
            except RuntimeError:
                return
            with self._lock:
                before, self.pool, self.workers = self.pool, pool, workers
            before.shutdown(wait=False)
        self.depth = depth

    def close(self) -> None:
        """End the threads after the batches that they are making; whoever draws on begins others."""
        with self._lock:
            pool, self.pool = self.pool, None
        if pool is not None:
            pool.shutdown(wait=True, cancel_futures=True)

    def forked(self) -> None:
        """In a fork, which has none of its parent's threads."""
        self.pool, self._lock = None, threading.RLock()


_at_work: weakref.WeakSet[Threads] = weakref.WeakSet()


def _begin_no_more() -> None:
    """Have the process end after the batches that are being made: Python would wait for all that is asked."""
    for one in list(_at_work):
        if one.pool is not None:
            one.pool.shutdown(cancel_futures=True)


# What `atexit` calls comes after Python has waited for threads.
threading._register_atexit(_begin_no_more)  # type: ignore[attr-defined]


@final
class FetchThreads(ThreadPoolExecutor):
    """Threads that do what they are asked as the thread that asks would, under ``torch.no_grad()`` say."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """The same as of other threads."""
        return super().submit(AsHere(), fn, *args, **kwargs)


def fetch_threads(count: int) -> FetchThreads:
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
        with contextlib.suppress(threading.BrokenBarrierError):
            everyone.wait()

    pool = FetchThreads(count, "outpace-serve", initializer=begin)
    try:
        for _ in range(count):
            pool.submit(int)
        everyone.wait()
    except BaseException:  # no more threads, or Ctrl-C: those that wait are let go
        everyone.abort()
        pool.shutdown(cancel_futures=True)
        raise
    finally:
        torch._C.set_num_threads(own)  # what a script calls may be noted as its own wish
    return pool
