"""Batches made ahead, in order: in the training's own thread, in threads, or in worker processes.

Each worker makes whole batches: to hand over single samples doubles the CPU time of cheap ones. What
follows on a batch (`Arrival`) is done where it arrives in this process: by the thread that made it, or
where it comes out of a worker process.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Literal, NamedTuple, Protocol, final

import torch

from outpace.serve.forks import tell_in_forks
from outpace.serve.making import Arrival, BatchMaker, Made, Request
from outpace.serve.processes import Processes

Kind = Literal["none", "threads", "processes"]
AS_MADE = Arrival()
LEAST = 2
"""batches on their way: one is made while the training has the one before"""


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

    def alive(self) -> bool:
        """There is none."""
        return True

    def resize(self, workers: int, depth: int) -> None:
        """Nothing to change."""

    def close(self) -> None:
        """Nothing to end."""


class _OnItsWay(NamedTuple):
    """A batch that threads of a process make."""

    request: Request
    future: Future[Made]
    process: int


@final
class Threads:
    """In threads of this process, for samples that let other threads run while they are made."""

    def __init__(
        self, maker: BatchMaker, workers: int, depth: int, arrival: Arrival = AS_MADE
    ) -> None:
        self.maker, self.workers, self.depth, self.arrival = maker, workers, depth, arrival
        self.pool: ThreadPoolExecutor | None = fetch_threads(workers)
        tell_in_forks(self)

    def made(self, requests: Iterable[Request]) -> Iterator[Made]:
        """Each request's batch."""
        on_their_way: deque[_OnItsWay] = deque()
        try:
            for request in requests:
                on_their_way.append(self._begun(request))
                while len(on_their_way) >= max(LEAST, self.depth):
                    yield self._taken(on_their_way.popleft())
            while on_their_way:
                yield self._taken(on_their_way.popleft())
        finally:
            for one in on_their_way:
                if one.process == os.getpid():
                    one.future.cancel()

    def _begun(self, request: Request) -> _OnItsWay:
        if self.pool is None:
            self.pool = fetch_threads(self.workers)
        return _OnItsWay(request, self.pool.submit(self._make, request), os.getpid())

    def _taken(self, one: _OnItsWay) -> Made:
        """A batch; one that was not begun when the threads were ended is made now, and in a fork those
        that its parent's threads make: what they hold locked stays so there.
        """
        again = one.process != os.getpid() or one.future.cancelled()
        return (self._begun(one.request) if again else one).future.result()

    def _make(self, request: Request) -> Made:
        return self.arrival(self.maker(request))

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
            self.pool.shutdown(wait=False)
            self.pool, self.workers = pool, workers
        self.depth = depth

    def close(self) -> None:
        """End the threads after the batches that they are making; whoever draws on begins others."""
        if self.pool is not None:
            self.pool.shutdown(wait=True, cancel_futures=True)
            self.pool = None

    def forked(self) -> None:
        """In a fork, which has none of its parent's threads."""
        self.pool = None


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
        torch._C.set_num_threads(own)  # what a script calls may be noted as its own wish
    return pool
