"""`outpace.Loader`: batches that are ready when the step is, and an order that can be gone on with.

It looks at how samples are made, chooses threads or processes and how many, and says why. Samples
and their random numbers depend on seed, epoch and index alone; so the state is two numbers, and holds
for any number of workers and ranks and any batch size.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from outpace.errors import DataError, UsageError
from outpace.measure.machine import cores_of_rank, free_memory, local_ranks
from outpace.seams.generators import generators_kept
from outpace.serve.allowed import AS_ASKED, kinds
from outpace.serve.climb import Climb, most_threads
from outpace.serve.coming import Coming, Terms, crosses
from outpace.serve.crops import weighed
from outpace.serve.executors import Executor, Kind, start
from outpace.serve.keeping import shelf_for
from outpace.serve.making import Arrival, BatchMaker, OnError, Skipped, bytes_of
from outpace.serve.open_files import none_opened
from outpace.serve.order import Order, Repeated
from outpace.serve.processes import shared_free
from outpace.serve.rates import Choice, bytes_ahead, depth_of
from outpace.serve.repaid import Left
from outpace.serve.sources import open_source
from outpace.serve.torchdata import as_ours, is_state, state_for
from outpace.serve.transfer import transferred
from outpace.serve.tuner import PROBED, choose

PREFETCH_BYTES = 256 * 2**20
EXECUTORS = ("auto", "none", "threads", "processes")
SHARE_OF_MEMORY = 0.25
"""of free memory that workers and batches may take unless told otherwise"""
LITTLE_S = 0.05
"""in which one may look between epochs whether samples have begun to draw"""
LOOKED_AT = 16
"""batches that the choice of workers is made from"""


class Loader:
    """Batches of a data set, epoch by epoch.

    ``source``: a data set with ``len`` and ``[]``, or what `outpace pack` takes or writes: a folder,
    a tar, a table, what LitData, MDS and Hugging Face wrote, an address, ``module:name``.
    ``batch_size``: samples of a batch, on each rank. They are shuffled over the whole data set unless
    ``shuffle`` is False (for validation); ``seed``: of order and random numbers; ``drop_last``: without a
    last batch that is not full; ``rank``, ``world``: torch.distributed's unless given.
    ``prepare(sample)``: what is always the same of making a sample, such as decoding; after it
    ``transform(sample)`` or ``transform(sample, rng)``, with a numpy Generator of that sample in that
    epoch. ``collate``: list of samples -> batch. ``after``: batch -> batch, last of all, on ``device``:
    bytes become numbers there.

    ``keep``: what ``prepare`` gives is kept on disk for the machine's ranks and later runs, in a folder
    of that name if one is given, else among the system's temporary files. ``disk``: bytes that all that is
    kept there may take; what was used longest ago goes first. ``epochs``: of the whole training, from
    epoch 0; ``seconds``: from now until it is to be over. Given one of them, samples are kept only if what
    is left repays it (`notes` tells).

    ``workers`` and ``executor``: chosen by trying unless given. ``ram``: bytes that workers and batches
    may take together; ``prefetch_bytes``: batches that are made ahead, of which there is one at the least.
    ``on_error="skip"`` leaves out samples that cannot be made; they are in ``skipped``. A batch of which
    none can be made raises all the same.

    Under torch.distributed each rank gets its share of a batch of ``batch_size`` x ranks samples; the
    last batch is filled up from the epoch's first samples, so that all ranks make equally many steps.

    Raises DataError where a sample cannot be read (it names it), UsageError for a setting that
    cannot be.
    """

    def __init__(
        self,
        source: Any,
        batch_size: int = 64,
        *,
        prepare: Callable[[Any], Any] | None = None,
        transform: Callable[..., Any] | None = None,
        collate: Callable[[list[Any]], Any] | None = None,
        after: Callable[[Any], Any] | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
        workers: int | Literal["auto"] = "auto",
        executor: Kind | Literal["auto"] = "auto",
        prefetch_bytes: int = PREFETCH_BYTES,
        ram: int | None = None,
        keep: bool | str | Path = False,
        disk: int | None = None,
        epochs: float | None = None,
        seconds: float | None = None,
        on_error: OnError = "raise",
        device: str | torch.device | None = None,
        rank: int | None = None,
        world: int | None = None,
    ) -> None:
        check_batch_size(batch_size)
        if on_error not in ("raise", "skip"):
            raise UsageError(f"on_error is {on_error!r}", "it is 'raise' or 'skip'")
        if executor not in EXECUTORS:
            known = ", ".join(map(repr, EXECUTORS))
            raise UsageError(f"executor is {executor!r}", f"it is one of {known}")
        count: Any = workers
        if count != "auto" and not (isinstance(count, int | np.integer) and count >= 0):
            raise UsageError(f"workers is {count!r}", "it is 'auto' or a number, 0 or more")
        seed = int(seed)
        for what, number in (("epochs", epochs), ("seconds", seconds)):
            if number is not None and number <= 0:
                raise UsageError(f"{number} {what}", f"{what}= is how long the training will be")
        self.source = open_source(source)
        self.batch_size, self.drop_last = int(batch_size), drop_last
        self.drop_single = False
        """a last batch of a single sample on each rank is left out"""
        self._given = (rank, world)
        self.rank, self.world = ranks(rank, world)
        self.after, self.device = after, torch.device(device) if device is not None else None
        if self.device is None:
            self._arrival = Arrival(after)
        else:  # `after` follows on the device
            self._arrival = Arrival(pin=self.device.type == "cuda")
        self.prefetch_bytes = prefetch_bytes
        self.ram = ram if ram is not None else int(SHARE_OF_MEMORY * free_memory() / local_ranks())
        self.order: Order | Repeated = Order(len(self.source), seed, shuffle=shuffle)
        self.maker = BatchMaker(
            self.source,
            seed=seed,
            prepare=prepare,
            transform=transform,
            collate=collate,
            on_error=on_error,
        )
        self.keep, self.disk, self.epochs = keep, disk, epochs
        self._deadline = time.monotonic() + seconds if seconds is not None else None
        self._length_given = epochs is not None or seconds is not None
        self._cores = cores_of_rank()
        self.skipped: list[Skipped] = []
        self.notes: list[str] = []
        self.choice: Choice | None = None
        self._wanted = (executor, int(workers) if workers != "auto" else workers)
        self._executor: Executor | None = None
        self._climb: Climb | None = None
        self._coming: Coming | None = None
        """batches of the next epoch that were begun in the one before"""
        self._epoch = self._consumed = 0
        self._drawn: NDArray[np.int64] = np.zeros(0, np.int64)
        self._begun = False
        self._told = 0
        """times that it was said where the next iteration begins"""
        self._running: Order | Repeated | None = None
        """of the epoch at hand, once it is drawn from"""
        self._resized = False
        """workers are to be chosen anew"""
        self._waited_s = self._choosing_s = 0.0
        """seconds that were waited for batches so far, and that choosing workers took"""
        self._looked_at: int | None = None
        """state of what samples are made by, when it was looked at what they draw from"""
        self._filling = False
        """samples are being kept that were not before"""

    @property
    def epoch(self) -> int:
        """The epoch at hand, or the next one; from 0."""
        return self._epoch

    @property
    def indices(self) -> NDArray[np.int64]:
        """Of this rank's samples in the batch that was drawn last; those skipped are among them."""
        return self._drawn

    def __len__(self) -> int:
        """Batches of a whole epoch, on each rank."""
        return self._batches(self.order.size)

    @property
    def left(self) -> int:
        """Batches that are left of the epoch at hand, on each rank."""
        return self._batches(self._at_hand.size - self._consumed)

    @property
    def _at_hand(self) -> Order | Repeated:
        return self._running or self.order

    def _batches(self, left: int) -> int:
        return self._terms.batches(left)

    @property
    def _terms(self) -> Terms:
        dropped = self.drop_last, self.drop_single
        return Terms(self.order, self.batch_size, self.rank, self.world, *dropped)

    def __iter__(self) -> Iterator[Any]:
        """The batches of an epoch, or those that are left of it after `load_state_dict`."""
        if self.world == 1 and self._given == (None, None):
            self.meet()  # it may have been made before ranks had met
        if self._begun:
            self._epoch, self._consumed = self._epoch + 1, 0
        if not self._consumed:
            self._follow()
        self._begun, self._running = True, None
        filled = self._filling and self._kept() == len(self.source)
        # Other workers may be best.
        if filled or self._resized or self._may_choose_again() or self._draws_otherwise():
            self.close()
            self.choice, self._resized = None, False
            self._filling = self._filling and not filled
        return self._epoch_from(self._epoch, self._consumed, self._told)

    def _may_choose_again(self) -> bool:
        """Whether there is a reason to, and what it takes is little to what has been waited."""
        again_s = self.choice.again_s if self.choice is not None else 0.0
        return 0 < again_s < PROBED * self._waited_s - self._choosing_s

    def _draws_otherwise(self) -> bool:
        """Whether samples draw from other generators, since what makes them was changed."""
        if self.choice is None or self._looked_at is None:
            return False
        state = self.maker.state()
        if state is None or state == self._looked_at:
            return False
        began = time.perf_counter()
        with none_opened(self.source) as unopened:
            more = self.maker.draws_more(self.after if self.device is None else None)
        unopened.for_forks()
        # To look at each change is not to hold up each epoch.
        self._looked_at = state if time.perf_counter() - began <= LITTLE_S else None
        return more

    def _follow(self) -> None:
        """Have all samples of a data set that has grown or shrunk."""
        size = len(self.source)
        if isinstance(self.order, Repeated):
            if size != len(self.order.ends):
                raise UsageError(
                    f"the data set has {size} samples, repeat() was given {len(self.order.ends)} factors",
                    "give repeat() one for each sample",
                )
        elif size != self.order.size:
            self.close()
            self.order = Order(size, self.order.seed, shuffle=self.order.shuffle)
            self.choice = self.maker.shelf = None  # which has a place for each sample

    def _epoch_from(self, epoch: int, consumed: int, told: int) -> Iterator[Any]:
        # Whatever is set meanwhile is for the next iteration, which may have begun within this one.
        terms = self._terms
        self._running = order = terms.order
        coming = self._coming_from(terms, epoch, consumed)
        reached, before, whole = consumed, len(self.skipped), False
        since = done = time.perf_counter()
        try:
            for made in transferred(coming.of_epoch(), self.device, self.after):
                got = time.perf_counter()
                if made.error is not None:
                    raise made.error
                self.skipped += made.skipped
                self._drawn = coming.asked.popleft().indices
                reached = min(order.size, reached + terms.together)
                if self._told == told:
                    self._epoch, self._consumed = epoch, reached
                    self._begun, self._running = True, order
                yield made.batch
                waited, since, done = got - done, done, time.perf_counter()
                self._waited_s += waited
                self._adjust(waited, done - since, made.batch)
            whole = True
        finally:
            given_up: Coming | None = coming
            if whole and not coming.over and coming.executor is self._executor:
                given_up, self._coming = self._coming, coming
            if given_up is not None:
                given_up.close()
        if self._told == told:
            self._next_is(epoch + 1)
        if self._looked_at is not None and self.choice is not None and self.choice.kind == "none":
            # Samples that are made here may leave something behind.
            self._looked_at = self.maker.state()
        if skipped := self.skipped[before:]:
            first = f"the first {skipped[0].where}: {skipped[0].reason}"
            self.notes.append(f"epoch {epoch}: {len(skipped)} samples left out, {first}")

    def _coming_from(self, terms: Terms, epoch: int, consumed: int) -> Coming:
        """Batches from there on: those that were begun in the epoch before, where they are the same."""
        executor = self._at_work()
        self.maker.find_held()
        begun, self._coming = self._coming, None
        if begun is not None:
            if begun.continues(executor, terms, epoch, consumed):
                return begun
            begun.close()
        several = crosses(executor, self.maker, self._arrival.after)
        epochs = self.epochs if several else epoch + 1
        return Coming(executor, terms, epoch, consumed, self.maker, epochs)

    def _at_work(self) -> Executor:
        if self._executor is None:
            if self.choice is None:
                # What is tried may draw random numbers, more of them where the machine is faster.
                with generators_kept(), none_opened(self.source) as self.maker.unopened:
                    self.choice = self._chosen()
                if self.choice.kind == "processes":
                    self.maker.unopened.for_forks()
                    self.maker.unopened.untouched = False
                else:
                    self.maker.unopened = None
                began = time.perf_counter()
                state = None if self.maker.copied else self.maker.state()
                self._looked_at = state if time.perf_counter() - began <= LITTLE_S else None
            kind, workers, depth = self.choice[:3]
            size = self.choice.batch_bytes
            self._executor = start(
                kind,
                self.maker,
                workers,
                depth,
                size,
                self._arrival,
                keeps_freed=self.choice.keeps_freed,
                most_bytes=bytes_ahead(kind, workers, self.prefetch_bytes, self.ram),
            )
            if getattr(self._executor, "by_pipe", False):
                free = shared_free() / 2**20
                self.notes.append(
                    f"shared memory has {free:.0f} MiB free, too little for {depth} batches on their "
                    "way: they are copied through pipes"
                )
            if kind == "threads" and self._wanted[1] == "auto":
                most = most_threads(workers, size, self.prefetch_bytes, self.ram)
                self._climb = Climb(workers, most, self._cores)
        return self._executor

    def _kept(self) -> int:
        return len(self.maker.shelf) if self.maker.shelf is not None else 0

    def _left(self) -> Left:
        """Of the whole training."""
        begun = self._epoch + self._consumed / max(1, self._at_hand.size)
        return Left(
            self.epochs - begun if self.epochs is not None else None,
            self._deadline - time.monotonic() if self._deadline is not None else None,
            self._cores * self.world,
        )

    def _chosen(self) -> Choice:
        """As the user wants it; what is left open is tried on the first batches."""
        kind, workers = self._wanted
        if self.keep and self.maker.shelf is None:
            parent = None if self.keep is True else Path(self.keep)
            self.maker.shelf, said = shelf_for(self.maker, parent, self.disk, self._left())
            self.notes.append(said)
            self.keep = self.maker.shelf is not None and self.keep
            self._filling = self._kept() < len(self.source)
        after = self.after if self.device is None else None
        found = kinds(self.maker, kind, workers, after, self.notes.append)
        if told := weighed(self.maker):
            self.notes.append(told)
        if isinstance(found, Choice):
            return found
        if not self.order.size:
            return AS_ASKED
        terms = self._terms
        firsts = range(0, max(1, self.order.size - terms.together + 1), terms.together)
        requests = [terms.request(self._epoch, first) for first in firsts[:LOOKED_AT]]
        begun = time.perf_counter()
        choice = choose(
            self.maker,
            requests,
            kinds=found,
            workers=workers if isinstance(workers, int) else None,
            batches=len(self),
            cores=self._cores,
            prefetch_bytes=self.prefetch_bytes,
            ram=self.ram,
            arrival=self._arrival,
            saved_s=max(0.0, PROBED * self._waited_s - self._choosing_s),
        )
        self._choosing_s += time.perf_counter() - begun
        return choice

    def _adjust(self, waited_s: float, spent_s: float, batch: Any) -> None:
        if self._climb is None or self._executor is None:
            return
        workers = self._climb.told(waited_s, spent_s, self.notes.append)
        if workers != self._executor.workers:
            depth = depth_of("threads", workers, bytes_of(batch), self.prefetch_bytes, self.ram)
            self._executor.resize(workers, depth)
            if (count := self._executor.workers) != workers:
                self._climb = None
                self.notes.append(f"the system gives no more threads: {count} are kept")

    def state_dict(self, *, torchdata: bool = False) -> dict[str, Any]:
        """Where the training is: what has been drawn, not what has been made ahead.

        ``torchdata``: as a StatefulDataLoader without workers goes on from it; DataError where this shuffles.
        """
        if torchdata:
            return state_for(self)
        return {"epoch": self._epoch, "consumed": self._consumed, **_told(self._at_hand)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there, with any workers, ranks and batch size.

        A state of torchdata's StatefulDataLoader is taken where nothing is shuffled: it is of the epoch
        at hand, and where that loader had workers, of batches as large as these.
        """
        if is_state(state):
            state = as_ours(state, self)
        for name, own in _told(self.order).items():
            if state.get(name) != own:
                raise DataError(
                    f"the state is of a loader with {name} {state.get(name)}, this one has {own}",
                    "go on with the same data, seed, shuffle and what repeat() was given",
                )
        self.set_epoch(state["epoch"])
        self._consumed = int(state["consumed"])

    def repeat(self, factors: Sequence[float] | NDArray[np.float64]) -> None:
        """Have sample i come ``factors[i]`` times an epoch on average, from the next iteration on.

        An epoch then has as many samples as the factors sum up to; each is 0 or more. Each time
        that a sample comes it has random numbers of its own.
        """
        if len(factors) != len(self.source):
            raise UsageError(
                f"{len(factors)} factors for {len(self.source)} samples", "give one for each sample"
            )
        if not (np.isfinite(factors).all() and np.min(factors) >= 0 and np.max(factors) > 0):
            raise UsageError("factors are 0 or more, and not all 0", "1 is for once an epoch")
        self.order = Repeated(factors, self.order.seed, shuffle=self.order.shuffle)

    def resize(self, batch_size: int) -> None:
        """Have batches of so many samples, from the next iteration on; workers are chosen anew."""
        check_batch_size(batch_size)
        self.batch_size, self._resized = int(batch_size), True

    def lasts(self, epochs: float | None, seconds: float | None) -> None:
        """The training will be of so many epochs, and end in so many seconds; what was given first holds."""
        if not self._length_given:
            self.epochs = epochs
            self._deadline = time.monotonic() + seconds if seconds is not None else None

    def set_epoch(self, epoch: int) -> None:
        """Have the next iteration be of that epoch, from its start."""
        self._told += 1
        self._next_is(epoch)

    def _next_is(self, epoch: int) -> None:
        self._epoch, self._consumed, self._begun, self._running = int(epoch), 0, False, None

    def meet(self) -> None:
        """Have this rank's share of each batch, where ranks have met since and none was given."""
        self.rank, self.world = ranks(*self._given)

    def leave(self) -> None:
        """Have the next iteration be of a whole epoch, where one was begun and left."""
        if self._begun:
            self.set_epoch(self._epoch + 1)

    def close(self) -> None:
        """End threads or processes; they begin anew when batches are drawn again."""
        if self._coming is not None:
            self._coming.close()
            self._coming = None
        if self._executor is not None:
            self._executor.close()
            self._executor = self._climb = None


def _told(order: Order | Repeated) -> dict[str, Any]:
    """What a state says of an order, by which alone it can be gone on with."""
    return {
        "seed": order.seed,
        "samples": order.size,
        "shuffle": order.shuffle,
        "repeats": order.repeats,
    }


def ranks(rank: int | None, world: int | None) -> tuple[int, int]:
    """This process's number and how many there are, by torch.distributed unless given."""
    distributed = torch.distributed.is_available() and torch.distributed.is_initialized()
    if world is None:
        world = torch.distributed.get_world_size() if distributed else 1
    if rank is None:
        rank = torch.distributed.get_rank() if distributed and world > 1 else 0
    if not 0 <= rank < world:
        raise UsageError(f"rank {rank} of {world}", "ranks count from 0")
    return int(rank), int(world)


def check_batch_size(size: Any) -> None:
    """Raises UsageError for what is no number of samples."""
    if isinstance(size, bool) or not isinstance(size, int | np.integer):
        raise UsageError(f"batch_size is {size!r}", "it is a whole number, 1 or more")
    if size < 1:
        raise UsageError(f"a batch of {size} samples", "batch_size is 1 or more")
