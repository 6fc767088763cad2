"""Batches made by worker processes, each whole, and brought over in one piece."""

from __future__ import annotations

import atexit
import contextlib
import gc
import shutil
import signal
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
from torch.utils.data import DataLoader

from outpace.errors import DataError, OutpaceError
from outpace.measure.machine import local_ranks
from outpace.serve.allocating import keep_freed
from outpace.serve.crossing import SMALL, Packer, never, stacked_in_own_memory, unpacked
from outpace.serve.forks import tell_in_forks
from outpace.serve.heirs import no_heirs
from outpace.serve.making import Arrival, BatchMaker, Made, Request, bytes_of
from outpace.serve.places import SLACK, SPARE, Places
from outpace.serve.room import Room

SHARED = Path("/dev/shm")
SHARE = 0.5
"""of free shared memory that batches on their way may take"""
ENDED = ("exited unexpectedly", "killed by signal")
"""what torch tells of workers that were ended from outside"""
MEMORY = "the system ends those that take too much memory: fewer workers=, or a smaller ram="
CLASSES = "executor='threads', or parts of classes that can be imported"
_at_work: weakref.WeakSet[Processes] = weakref.WeakSet()
_of_parents: list[Any] = []
"""iterators of a parent's, in its fork: kept, as torch knows them by their address"""
_making = False
"""in a worker: whether it is at a batch"""


@final
class Processes:
    """In worker processes of a DataLoader, which lives as long as this."""

    def __init__(
        self,
        maker: BatchMaker,
        workers: int,
        depth: int,
        batch_bytes: int,
        arrival: Arrival,
        *,
        keeps_freed: bool = False,
        most_bytes: float = np.inf,
    ) -> None:
        self.maker, self.workers, self.arrival = maker, workers, arrival
        self.batch_bytes, self.keeps_freed = batch_bytes, keeps_freed
        self.ahead, self.most_bytes = ahead_of(workers, depth), most_bytes
        self.by_pipe = max(workers, depth) * batch_bytes > SHARE * shared_free()
        self.places: Places | None = None
        self.room: Room | None = None
        self.loader: DataLoader[Any] | None = None
        self.state: int | None = None
        """of the data set that the workers have; None where that cannot be told"""
        self._asking: deque[Request] | None = None
        """what the iteration waits for that the workers are at"""
        tell_in_forks(self)

    def _loader(self) -> DataLoader[Any]:
        pinned = self.arrival.pin
        self.places = None if pinned else places_for(self.workers, self.ahead, self.batch_bytes)
        self.room = Room(self.workers, self.most_bytes)
        fits = Fits(self.workers, self.places)
        packer = Packer(places=self.places, by_pipe=self.by_pipe, fits=fits)
        own = self.by_pipe or self.places is not None
        return DataLoader(
            _InWorker(self.maker, packer, self.room),  # type: ignore[arg-type]
            batch_size=None,
            sampler=Asked(self.places, self.room),
            num_workers=self.workers,
            prefetch_factor=self.ahead,
            collate_fn=_as_it_is,
            persistent_workers=True,
            pin_memory=pinned,  # by a thread of this process
            worker_init_fn=_Begin(never if own else fits, keeps_freed=self.keeps_freed),
            generator=torch.Generator(),  # The training's own generator is not drawn from.
        )

    def made(self, requests: Iterable[Request]) -> Iterator[Made]:
        """Each request's batch. Of several iterations at once each has its own: the workers go over to the
        one that is drawn from, and what they had made ahead for another they make again.
        """
        waiting: deque[Request] = deque()
        coming: Iterator[Made] = iter(())
        more = iter(requests)

        def asked() -> Iterator[Request]:
            yield from tuple(waiting)
            for request in more:
                waiting.append(request)
                yield request

        number = 0
        while True:
            with self._telling():
                if self._asking is not waiting:
                    coming, number = self._begun(asked()), 0
                    self._asking = waiting
                assert self.room is not None
                self.room.ask(number)
                number += 1
                made = next(coming, None)
            if made is None:
                return
            waiting.popleft()
            yield self._arrived(made)

    def _begun(self, requests: Iterable[Request]) -> Iterator[Made]:
        """The workers at work on other requests; new ones where some have ended, or there are none."""
        before, self.state = self.state, self.maker.state()
        if before is None or before != self.state or not self.alive():
            self.close()
        with _no_warning(), no_heirs():
            if self.loader is None:
                if self.maker.unopened is not None:
                    self.maker.unopened.before_forks()
                self.loader = self._loader()
            elif self.room is not None:
                self.room.lift()  # what they are at is put away
            asked: Any = self.loader.sampler
            asked.requests = requests
            begun = iter(self.loader)
        _at_work.add(self)
        atexit.unregister(_none_waits)
        atexit.register(_none_waits)  # the last is called first: torch waits for workers to end
        return begun

    def alive(self) -> bool:
        """Ctrl-C ends workers that are at a batch, also of a training that goes on."""
        workers = getattr(getattr(self.loader, "_iterator", None), "_workers", ())
        return all(worker.is_alive() for worker in workers)

    @contextlib.contextmanager
    def _telling(self) -> Iterator[None]:
        """What is interrupted leaves the workers out of step: the next epoch begins with new ones."""
        try:
            yield
        except (RuntimeError, BrokenPipeError) as error:  # the latter of one that is to be started
            self.close()
            ended = any(said in str(error) for said in ENDED)
            raise DataError(
                f"worker processes cannot go on: {error}", MEMORY if ended else None
            ) from error
        except BaseException:
            self.close()
            raise

    def _arrived(self, made: Made) -> Made:
        if made.error is not None:
            return made
        batch = unpacked(made.batch, own=not self.arrival.pin, places=self.places)
        # Out of shared memory it is pinned by then; a large one that came through a pipe is not.
        joined = made.batch.joined
        piped = isinstance(joined, np.ndarray) and joined.nbytes > SMALL
        pin = self.arrival.pin and piped and torch.cuda.is_available()
        return self.arrival._replace(pin=pin)(made._replace(batch=batch))

    def resize(self, workers: int, depth: int) -> None:
        """Processes stay as many as they are: to start others costs more than it gives."""

    def close(self) -> None:
        """End the processes; whoever draws on begins others."""
        room, iterator = self.room, self._let_go()
        if room is not None:
            room.lift()
        if iterator is not None:
            with contextlib.suppress(Exception):
                iterator._shutdown_workers()

    def forked(self) -> None:
        """In a fork, whose parent's the processes are: they do not end with what it has of them."""
        iterator = self._let_go()
        if iterator is not None:
            iterator._shutdown = True
            _of_parents.append(iterator)

    def __del__(self) -> None:
        """Dropped, and its loader with it, which waits for its workers to end."""
        room = getattr(self, "room", None)
        if room is not None:
            room.lift()

    def _let_go(self) -> Any:
        loader, self.loader, self._asking = self.loader, None, None
        self.places = self.room = None
        iterator = getattr(loader, "_iterator", None)
        if iterator is not None:
            loader._iterator = None  # type: ignore[union-attr]
        return iterator


def _none_waits() -> None:
    """Have workers see that the process ends."""
    for one in list(_at_work):
        if one.room is not None:
            one.room.lift()


@contextlib.contextmanager
def _no_warning() -> Iterator[None]:
    """More workers than cores are meant, where they wait."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        yield


class Asked:
    """A sampler that gives the requests of the epoch at hand."""

    def __init__(self, places: Places | None, room: Room) -> None:
        self.requests: Iterable[Request] = ()
        self.places, self.room = places, room

    def __iter__(self) -> Iterator[Request]:
        # Drawn from once workers have put away what is left of an epoch before.
        if self.places is not None:
            self.places.none_coming()
        self.room.begin()
        yield from self.requests

    def __len__(self) -> int:
        raise TypeError("not known beforehand")


class _Begin:
    """What a worker process does first."""

    def __init__(self, fits: Callable[[int], bool], *, keeps_freed: bool) -> None:
        self.fits, self.keeps_freed = fits, keeps_freed

    def __call__(self, worker: int) -> None:
        # A collection writes to each object that it looks at, and so copies the parent's pages.
        gc.freeze()
        if self.keeps_freed:
            keep_freed()
        stacked_in_own_memory(self.fits)
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, _interrupted)


def _interrupted(number: int, frame: Any) -> None:
    """Ctrl-C in a worker: it leaves the batch that it is at, and ends.

    One that rests or hands over a batch is ended by its parent: an exception there could leave a queue's
    lock held, for which its end then waits for ever.
    """
    if _making:
        raise KeyboardInterrupt


class Fits:
    """Whether a batch of so many bytes may have shared memory of its own, while each of ``workers`` may ask
    for as much, and places be written to that were not before.
    """

    def __init__(self, workers: int, places: Places | None) -> None:
        self.workers = workers
        self.reserved = places.memory.nbytes if places is not None else 0

    def __call__(self, size: int) -> bool:
        return self.workers * size <= SHARE * (shared_free() - self.reserved)


class _InWorker:
    """The maker as a data set of requests, whose batches come as parcels."""

    def __init__(self, maker: BatchMaker, pack: Packer, room: Room) -> None:
        self.maker, self.pack, self.room = maker, pack, room

    def __getitem__(self, request: Request) -> Made:
        global _making
        _making = True
        try:
            self.room.wait()
            made = self.maker(request)
            self.room.made(bytes_of(made.batch))
        finally:
            _making = False
        if made.error is not None:
            return made
        try:
            return made._replace(batch=self.pack(made.batch))
        except Exception as error:
            hint = error.hint if isinstance(error, OutpaceError) else CLASSES
            told = f"a batch cannot be handed over by a process: {error}"
            return Made(None, error=DataError(told, hint))


def _as_it_is(made: Any) -> Any:
    return made


def ahead_of(workers: int, depth: int) -> int:
    """Batches on their way that each worker makes."""
    return max(1, depth // workers)


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
