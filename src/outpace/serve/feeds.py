"""Feeds: batches of a DataLoader made ahead by a thread, by threads or by processes.

A feed draws from the random generators in the order in which the DataLoader would, so that the order of
the samples is the same: a base seed as the epoch begins, then the sampler, at once where the script has
workers and with the first batch where it has none, and what the sampler draws at its end. What the samples
themselves draw comes in the same order too where one thread makes all batches; with several it does not.
"""

from __future__ import annotations

import itertools
import os
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset

from outpace.seams.apart import copy_of
from outpace.seams.later import Later
from outpace.seams.own_iterator import wraps_its_own
from outpace.seams.queued import queued
from outpace.seams.resting import rest, wake, worker_pids
from outpace.seams.setup import Feed
from outpace.serve.ahead import Ahead, Work
from outpace.serve.batches import Fetch, Forgiving, Slices, by_items
from outpace.serve.by_threads import ByThreads
from outpace.serve.cache import SampleCache
from outpace.serve.changes import state_of
from outpace.serve.crossing import Packer, check_picklable, stacked_in_own_memory, unpacked
from outpace.serve.heirs import no_heirs
from outpace.serve.places import Places
from outpace.serve.processes import Fits, places_for
from outpace.serve.refusals import refusal
from outpace.serve.sampler_end import until_end, without_end

drawing = threading.RLock()
"""threads of several loaders would draw from one data set at once, which one that seeks does not bear"""


def _drawing_in_fork() -> None:
    """Whoever draws in the parent does not in its fork."""
    global drawing
    drawing = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_drawing_in_fork)


def make_feed(loader: DataLoader[Any], feed: Feed) -> InProcess | Processes:
    """A feed at work on ``loader``; NotImplementedError where this loader cannot be fed so."""
    if wraps_its_own(loader):
        raise NotImplementedError("its class makes something else of its batches")
    if isinstance(loader.dataset, IterableDataset):
        if feed.executor not in ("own", "ahead"):
            raise NotImplementedError("an iterable data set is drawn by one worker only")
        if loader.persistent_workers:
            raise NotImplementedError("its own workers last, and have their places in the data")
    elif (why := refusal(loader, feed, drawing)) is not None:
        raise NotImplementedError(why)
    if feed.executor == "processes":
        return Processes(loader, feed)
    return InProcess(loader, feed)


class InProcess:
    """Batches made in this process: in the training thread, or by threads that work ahead."""

    def __init__(self, loader: DataLoader[Any], feed: Feed) -> None:
        # A copy: what is known of a DataLoader must not keep it alive.
        self.loader: DataLoader[Any] = copy_of(loader)
        self.own = weakref.ref(loader)
        self.feed = feed
        self.iterable = isinstance(loader.dataset, IterableDataset)
        self.go = threading.Event()
        self.go.set()
        self.closed = threading.Event()
        self.pool: list[Any] = []
        self.working: list[Work] = []
        self.fast: Slices | SampleCache | None = None
        self.fetch = None if self.iterable else self._fetch()
        by_threads = feed.executor == "threads"
        self.threads = ByThreads(loader.dataset, feed.workers) if by_threads else None
        self.process = os.getpid()

    def _fetch(self) -> Fetch:
        items = by_items(self.loader)
        if self.feed.fetch == "items":
            return items
        if self.feed.fetch == "slice":
            self.fast = Slices(self.loader)
        else:
            self.fast = SampleCache(self.loader, self.feed.cache_bytes)
        return Forgiving(self.fast.fetch, items, f"fetching by {self.feed.fetch}")

    def epoch(self) -> Iterator[Any]:
        """The batches of one epoch."""
        if self.process != os.getpid():  # a fork has none of its parent's threads
            self.process, self.working = os.getpid(), []
            if self.threads is not None:
                self.threads.begin()
        for ahead in self.working:
            if ahead.left.is_set():
                ahead.thread.join()  # Two threads must not draw from one data set at once.
        self.working = [ahead for ahead in self.working if ahead.thread.is_alive()]
        if self.fast is not None:
            self.fast.new_epoch()
        indices: Iterator[Any] = iter(()) if self.iterable else self._indices()
        own = _own_iterator(self.loader) if self.iterable else None

        def begin() -> Iterator[Any]:
            # The first index seeds the sampler from the global generator: in the script's own thread.
            first = list(itertools.islice(indices, 1))
            batches = own if own is not None else map(self._make, itertools.chain(first, indices))
            if self.feed.executor in ("ahead", "threads"):
                work = Work(batches, self.feed.prefetch, self.go, self.closed)
                self.working.append(work)
                batches = Ahead(work)
            return until_end(batches, self.loader)

        return Later(begin) if own is None and not self.loader.num_workers else begin()

    def _indices(self) -> Iterator[Any]:
        loader, order = self.loader, without_end(self.loader)
        indices: Iterator[Any] = iter(order)
        if (own := self.own()) is None or takes_seed(own):
            _seed_from(loader.generator)
            if loader.num_workers:
                indices = iter(order)  # as its own iterator asks once more
        if self.feed.pool:
            if len(self.pool) < self.feed.pool:
                self.pool = list(itertools.islice(indices, self.feed.pool))
            return itertools.islice(itertools.cycle(self.pool), len(loader))
        return indices

    def _make(self, indices: Any) -> Any:
        assert self.fetch is not None
        loader: Any = self.loader
        if self.threads is not None and self.feed.fetch == "items" and loader._auto_collation:
            batch = self.loader.collate_fn(self.threads.items(list(indices)))
        else:
            with drawing:
                batch = self.fetch(indices)
        if (self.loader.pin_memory or self.feed.pin) and torch.cuda.is_available():
            from torch.utils.data._utils.pin_memory import pin_memory

            batch = pin_memory(batch)  # type: ignore[no-untyped-call]
        return batch

    @property
    def gave_up(self) -> bool:
        """Whether a faster fetch turned out not to give the same: items are drawn here instead."""
        return isinstance(self.fetch, Forgiving) and self.fetch.fast is None

    def pids(self) -> list[int]:
        """Worker processes: none."""
        return []

    def queued(self) -> int:
        """Batches that are made and were not drawn yet."""
        return sum(work.ready.qsize() for work in self.working)

    def pause(self) -> None:
        """Stop working ahead."""
        self.go.clear()

    def resume(self) -> None:
        """Work ahead again."""
        self.go.set()

    def close(self) -> None:
        """End the threads."""
        self.closed.set()
        self.go.set()
        if self.threads is not None:
            self.threads.close()


def _seed_from(generator: torch.Generator | None) -> int:
    """The seed that a new iterator draws for its workers."""
    return int(torch.empty((), dtype=torch.int64).random_(generator=generator).item())


_seeded: weakref.WeakSet[DataLoader[Any]] = weakref.WeakSet()
"""DataLoaders with persistent workers, for which their seed was drawn by a feed"""


def takes_seed(loader: DataLoader[Any]) -> bool:
    """Whether its own iterator would draw a seed for workers now; if so, one with persistent workers is noted
    as seeded: theirs is drawn once.
    """
    if not loader.persistent_workers:
        return True
    drawn = loader._iterator is not None or loader in _seeded
    _seeded.add(loader)
    return not drawn


def _own_iterator(loader: DataLoader[Any]) -> Iterator[Any]:
    """The DataLoader's own iterator, unseen by the seams."""
    return loader._get_iterator()


def _places(loader: DataLoader[Any], feed: Feed) -> Places | None:
    """Where worker processes that last are to write batches that are not pinned."""
    if not feed.workers or not feed.persistent or loader.pin_memory or feed.pin:
        return None
    return places_for(feed.workers, feed.prefetch or 2, feed.place_bytes)


class Unpacked:
    """Batches as the script gets them; an error ends them no more than it ends the DataLoader's own."""

    def __init__(self, batches: Iterator[Any], places: Places | None) -> None:
        self.batches, self.places = batches, places
        self.over = False

    def __iter__(self) -> Unpacked:
        return self

    def __next__(self) -> Any:
        try:
            batch = next(self.batches)
        except StopIteration:
            self.over = True
            raise
        return batch if self.places is None else unpacked(batch, places=self.places)


class Collated:
    """What a worker makes of samples: a batch on its way, as a parcel where there are places for it."""

    def __init__(self, collate: Any, pack: Packer | None) -> None:
        self.collate, self.pack = collate, pack
        self.begun = False

    def __call__(self, samples: Any) -> Any:
        if self.begun:
            batch = self.collate(samples)
        else:
            if self.pack is not None:
                stacked_in_own_memory()
            batch = self.collate(samples)
            check_picklable(batch)
            self.begun = True
        return batch if self.pack is None else self.pack(batch)


class Seeding:
    """A sampler that draws a seed after it has begun, as a new iterator does for its workers.

    Persistent workers get no new iterator after the first epoch; without that draw the generator
    would be one number behind, and the samples in another order.
    """

    def __init__(
        self, sampler: Any, generator: torch.Generator | None, places: Places | None = None
    ) -> None:
        self.sampler = sampler
        self.generator = generator
        self.places = places
        self.begun = False

    def __iter__(self) -> Iterator[Any]:
        indices: Iterator[Any] = iter(self.sampler)
        if self.begun:
            _seed_from(self.generator)
            indices = iter(self.sampler)  # a new iterator with workers asks once more
        return indices if self.places is None else self._while_workers_rest(indices, self.places)

    def _while_workers_rest(self, indices: Iterator[Any], places: Places) -> Iterator[Any]:
        """The first index is asked for when workers have put away what is left of an epoch before."""
        places.none_coming()
        yield from indices

    def __len__(self) -> int:
        return len(self.sampler)


class Processes:
    """Batches made by worker processes of a DataLoader of the same data set and sampler.

    Where they last from epoch to epoch and the script's own would not, an epoch that begins while another
    is under way has workers of its own, as the script's would; and so has one in a fork, as these are its
    parent's.
    """

    gave_up = False

    def __init__(self, loader: DataLoader[Any], feed: Feed) -> None:
        own: Any = loader
        self.own = weakref.ref(loader)
        self.script: DataLoader[Any] = copy_of(loader)
        self.places = _places(loader, feed)
        common: dict[str, Any] = {
            "dataset": loader.dataset,
            "num_workers": feed.workers,
            "collate_fn": loader.collate_fn,
            "pin_memory": loader.pin_memory or feed.pin,
            "timeout": loader.timeout,
            "worker_init_fn": loader.worker_init_fn,
            "generator": loader.generator,
            "multiprocessing_context": own.multiprocessing_context if loader.num_workers else None,
        }
        if feed.workers:
            common["prefetch_factor"] = feed.prefetch or 2
        order = without_end(loader)
        if loader.batch_sampler is not None:
            sampler: dict[str, Any] = {"batch_sampler": order}
        else:
            sampler = {"batch_size": None, "sampler": order}
        self.beside: dict[str, Any] = common | sampler
        """what a DataLoader for an epoch beside another is made of"""
        name = "batch_sampler" if loader.batch_sampler is not None else "sampler"
        self.seeding = Seeding(order, loader.generator, self.places)
        if feed.workers:
            fits = Fits(feed.workers, self.places)
            pack = Packer(places=self.places, fits=fits) if self.places is not None else None
            common["collate_fn"] = Collated(loader.collate_fn, pack)
            common["persistent_workers"] = feed.persistent
        self.loader: DataLoader[Any] = DataLoader(**common | sampler | {name: self.seeding})
        self.one_at_a_time = loader.persistent_workers
        self.workers_of_its_own = loader.num_workers > 0
        self.kept: Any = None
        self.newest: Any = None
        self.running: weakref.ref[Unpacked] | None = None
        """the epoch that the lasting workers are at"""
        self.state: int | None = None
        """of the data set that they have; None where that cannot be told"""
        self.process = os.getpid()

    def epoch(self) -> Iterator[Any]:
        """The batches of one epoch."""
        draws = (own := self.own()) is None or takes_seed(own)
        if self.workers_of_its_own:
            # A new iterator draws a seed from this one; where the script's would not, from another.
            return self._begin(self.beside["generator"] if draws else torch.Generator(), draws)
        seed = _seed_from(self.beside["generator"]) if draws else 0
        return Later(lambda: self._begin(torch.Generator().manual_seed(seed), draws=False))

    def _begin(self, generator: torch.Generator | None, draws: bool) -> Iterator[Any]:
        """``generator``: that a seed for the workers is drawn from; ``draws``: also where they are there."""
        return until_end(self._drawn(generator, draws), self.script)

    def _drawn(self, generator: torch.Generator | None, draws: bool) -> Iterator[Any]:
        loader: Any = self.loader
        loader.generator = generator
        if not loader.persistent_workers:
            with no_heirs():
                self.newest = loader._get_iterator()
            return self.newest  # type: ignore[no-any-return]
        if os.getpid() != self.process or (self._under_way() and not self.one_at_a_time):
            return _own_iterator(DataLoader(**self.beside | {"generator": generator}))
        if self.kept is not None and len(worker_pids(self.kept)) < loader.num_workers:
            self.kept = self.newest = None  # Ctrl-C ends workers, also of a script that goes on
        parts = loader.dataset, self.beside["collate_fn"], self.beside["worker_init_fn"]
        before, self.state = self.state, state_of(*parts)
        if not self.one_at_a_time and (before is None or before != self.state):
            # The script's own would be forked with the data set as it is.
            self.kept = self.newest = None
        self.seeding.begun = self.kept is not None and draws
        if self.kept is not None:
            self.kept._reset(loader)
        else:
            with no_heirs():
                self.kept = loader._get_iterator()
        self.newest = self.kept
        batches = Unpacked(self.kept, self.places)
        self.running = weakref.ref(batches)
        return batches

    def _under_way(self) -> bool:
        """Whether somebody may still draw from the epoch that began last."""
        running = self.running() if self.running is not None else None
        return running is not None and not running.over

    def pids(self) -> list[int]:
        """Worker processes at work."""
        return worker_pids(self.newest) if os.getpid() == self.process else []

    def queued(self) -> int | None:
        """Batches that are made and were not drawn yet; None: no more are made in this epoch."""
        return queued(self.newest) if os.getpid() == self.process else 0

    def pause(self) -> None:
        """Stop the workers where they are."""
        rest(self.pids())

    def resume(self) -> None:
        """Let the workers go on."""
        wake(self.pids())

    def close(self) -> None:
        """End the workers."""
        self.resume()
        self.kept = self.newest = None

    def __del__(self) -> None:
        """Dropped, and its iterator with it, which waits for its workers to end."""
        self.resume()
