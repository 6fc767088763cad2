"""DataLoader: how it was built, when an epoch begins, and what drawing a batch costs.

Three places are taken: construction (for its line), ``__iter__`` (an epoch begins) and the
iterator's ``__next__`` (a batch is drawn). `outpace.seams.feeding` gives batches made in another way,
`outpace.seams.epoch_end` says where an epoch ends sooner or later than after its last one.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import sys
import weakref
from collections.abc import Callable, Iterator, MutableMapping
from threading import get_ident
from typing import Any, NamedTuple

from torch.utils.data import DataLoader, IterableDataset
from torch.utils.data.dataloader import _BaseDataLoaderIter, _MultiProcessingDataLoaderIter
from torch.utils.weak import WeakIdKeyDictionary

from outpace.seams.apart import apart, held_by
from outpace.seams.batch import batch_size, tensors_in
from outpace.seams.epoch import Epoch, Instead
from outpace.seams.epoch_end import Longer, ends_here, lengthened
from outpace.seams.feeding import Feeding, MakeFeed
from outpace.seams.generators import generators_kept, restoring
from outpace.seams.host import Host, on_stderr
from outpace.seams.in_place_of import Replaced
from outpace.seams.later import Later
from outpace.seams.loader_record import Line, Record, Start, Starts
from outpace.seams.own_iterator import own_iterator, wraps_its_own
from outpace.seams.recent import Recent
from outpace.seams.resting import wake, worker_pids
from outpace.seams.setup import AS_IS, Setup
from outpace.seams.untraced import untraced
from outpace.seams.where import caller, lines_of


class Fed(NamedTuple):
    """What DataLoaders that were made one after the other at a line have in common."""

    number: int
    dataset: weakref.ref[Any]
    kind: type
    length: int | None
    recent: Recent
    starts: Starts
    line: Line

    def replaced(self, record: Record, dataset: Any) -> bool:
        """Whether a DataLoader of that line is for as many samples in the place of those: these are gone."""
        alike = type(dataset) is self.kind and record.length == self.length
        return alike and self.dataset() is None and not self.line.mixed


class LoaderSeam:
    """Stands at DataLoader and its iterators."""

    name = "loader"

    def __init__(
        self, host: Host, make_feed: MakeFeed | None = None, *, switching: bool = False
    ) -> None:
        self.host = host
        self.feeding = Feeding(make_feed)
        self.switching = switching
        """arms alternate inside of an epoch; else a feed serves whole epochs of every loader"""
        self.records: MutableMapping[DataLoader[Any], Record] = WeakIdKeyDictionary()
        """by identity: a class of the script's may compare its DataLoaders otherwise"""
        self.numbers = itertools.count()
        self.fed_by: dict[str, Fed] = {}
        """what trains, by the line where its DataLoader was made"""
        self.elsewhere: dict[int, list[weakref.ref[Any]]] = {}
        """thread -> its iterators, while none is known to train"""
        host.on_move.append(self.catch_up)
        self.on_draw: Callable[[Record, Any], None] | None = None
        """told of each batch that is given, while something is being probed"""
        self.before_draw: Callable[[Record], None] | None = None
        """told before each is made, meanwhile"""
        self.dry = False
        """epochs of training end, the later ones after one batch"""
        self.longer: Longer | None = None
        self.replaced = Replaced()
        self.installed = False
        self.plain_iter: Any = None
        self.plain_next: Any = None
        """the originals"""
        self.looks = True
        """each batch is seen; else only that an epoch begins, so that its batches can be seen later"""

    # --- putting in and taking out -------------------------------------------------------------

    def install(self) -> None:
        """Put the seam in."""
        if self.installed:
            return
        self.installed = self.looks = True
        self.replaced.put(DataLoader, "__init__", self._wrap_init)
        self.replaced.put(DataLoader, "__iter__", self._wrap_iter)
        self.replaced.put(_BaseDataLoaderIter, "__next__", self._wrap_next)
        if self.switching:
            self.replaced.put(
                _MultiProcessingDataLoaderIter, "_shutdown_workers", self._wrap_shutdown
            )

    def remove(self) -> None:
        """Take it out."""
        if self.installed:
            self.installed = False
            self.replaced.put_all_back()
            self.feeding.switch(AS_IS, list(self.records.values()) if self.switching else [])
            for record in list(self.records.values()):
                record.begun = None

    def reconcile(self, setup: Setup) -> None:
        """Let batches come as ``setup`` says."""
        if self.installed and self.looks != setup.watched:
            self.looks = setup.watched
            if self.looks:
                self.replaced.put(_BaseDataLoaderIter, "__next__", self._wrap_next)
            else:
                self.replaced.put_back(_BaseDataLoaderIter, "__next__")
            for record in list(self.records.values()):
                (record.look_again if self.looks else record.look_away)()
        self.feeding.switch(setup, list(self.records.values()) if self.switching else [])

    def close(self) -> None:
        """End all feeds."""
        for record in list(self.records.values()):
            if record.own is not None:
                wake(worker_pids(record.own))
            for runner in record.runners.values():
                runner.close()

    # --- the three places ----------------------------------------------------------------------

    def record_of(self, loader: DataLoader[Any]) -> Record:
        """What is known of a DataLoader."""
        record = self._met(loader)
        if not record.asked:
            self._ask_length(loader, record)
        return record

    def _met(self, loader: DataLoader[Any]) -> Record:
        record = self.records.get(loader)
        if record is None:
            record = self.records[loader] = Record(next(self.numbers))
        return record

    def _ask_length(self, loader: DataLoader[Any], record: Record) -> None:
        """How many batches an epoch has, as a copy tells: a sampler of the script's may draw random numbers
        for that, and keep what it drew; and a loader that was asked warns where it then gives more. None
        where what it may shuffle for that is too large to be copied.
        """
        with generators_kept(*held_by(loader)):
            try:
                record.length = len(apart(loader))
            except Exception:
                record.length = None
        record.asked = True

    def loader_of(self, record: Record) -> DataLoader[Any] | None:
        """The DataLoader of which that is known; None where the script needs no more than its iterator, and
        has let it go.
        """
        return next((k for k, v in list(self.records.items()) if v is record), None)

    def _wrap_init(self, original: Any) -> Any:
        seam = self

        @functools.wraps(original)
        def __init__(loader: DataLoader[Any], *args: Any, **kwargs: Any) -> None:
            original(loader, *args, **kwargs)
            if not seam.within_input():
                seam.host.guard("loader", seam.note_made, loader)

        return __init__

    def note_made(self, loader: DataLoader[Any]) -> None:
        """A DataLoader was made."""
        self.records[loader] = Record(next(self.numbers), caller())

    def within_input(self) -> bool:
        """Whether batches are being made: a DataLoader that is met now is a feed's, or the data set's own."""
        phases = self.host.phases
        return bool(phases.stack) and phases.stack[-1] == "input" and get_ident() == phases.owner

    def _wrap_iter(self, original: Any) -> Any:
        self.plain_iter, seam, host = original, self, self.host
        phases = host.phases

        @functools.wraps(original)
        def __iter__(loader: DataLoader[Any]) -> Any:
            if get_ident() != phases.owner:
                made = original(loader)
                host.guard("loader", seam.note_elsewhere, loader, made)
                return made
            if seam.within_input():
                return original(loader)
            host.wake()
            record = host.guard("loader", seam.begin_epoch, loader)
            if record is None:
                return original(loader)
            if seam.switching and not record.trains:
                seam.feeding.let_work(list(seam.records.values()))
            if not seam.looks:
                return seam.begin_own(loader, record)
            phases.push("input")
            host.saw_epoch(trains=record.trains)
            start = phases.mark
            try:
                made = seam.serve(loader, record)
                if made is None:
                    made = seam.begin_own(loader, record)
                else:
                    record.drawn_from(made)
                return made
            finally:
                phases.pop()
                setup = seam.feeding.setup
                own = setup.feed == AS_IS.feed and not setup.free_input
                record.starts.append(Start(phases.mark - start, own))

        return __iter__

    def begin_own(self, loader: DataLoader[Any], record: Record) -> Any:
        """The DataLoader's own batches for a new epoch.

        Where each step begins one its iterator is made once a batch is asked of it: an arm that gives
        others does without it, and without its workers.
        """
        anew = self.switching and self.looks and record.trains and self.host.mingled
        if anew and not wraps_its_own(loader):
            made: Any = Epoch(self, record, loader, self._own_later(loader, record))
        else:
            made = self._own(loader, record)
        self.host.guard("loader", record.drawn_from, own_iterator(made))
        return made

    def _own(self, loader: DataLoader[Any], record: Record) -> Iterator[Any]:
        """The DataLoader's own batches, whose iterator is known again by its record."""
        if record.own is not None:
            wake(worker_pids(record.own))  # persistent ones answer to a new epoch
        self._makes(record)
        if (
            self.dry
        ):  # what leaves the loops traces this thread, and would the workers that are forked here
            made = untraced(lambda: self.plain_iter(loader))
        else:
            made = self.plain_iter(loader)
        self.host.guard("loader", self._know, loader, record, own_iterator(made))
        return made  # type: ignore[no-any-return]

    def _know(self, loader: DataLoader[Any], record: Record, made: Any) -> None:
        made._outpace = record
        record.iterator = weakref.ref(made)
        # Known while its epoch runs, also where the script lets it go. One with lasting workers has the
        # iterator in turn: both would outlive what the script does with them.
        if self.switching or not loader.persistent_workers:
            made._outpace_loader = loader
        if self.switching:
            self.feeding.rest(record)

    def _own_later(self, loader: DataLoader[Any], record: Record) -> Callable[[], Iterator[Any]]:
        """The same for each epoch, made when the first of its batches is drawn."""
        return lambda: Later(lambda: self._own(loader, record), self.plain_next)

    def note_elsewhere(self, loader: DataLoader[Any], made: Any) -> None:
        """Another thread begins an epoch: it may turn out to be the one that trains."""
        if not self.host.steps:
            made = own_iterator(made)
            made._outpace_loader = loader  # the script may hold its iterator alone
            own = self.elsewhere.setdefault(get_ident(), [])
            own[:] = [one for one in own if one() is not None]
            own.append(weakref.ref(made))

    def catch_up(self) -> None:
        """The calling thread trains: its epochs that have begun are known from here on."""
        for one in self.elsewhere.pop(get_ident(), ()):
            if (made := one()) is not None:
                loader = made._outpace_loader
                record = self.begin_epoch(loader)
                self._know(loader, record, made)
                record.turn_to(made)
                record.given = getattr(made, "_num_yielded", 0)
                self.host.drawn.gave(record)
        self.elsewhere.clear()

    def begin_epoch(self, loader: DataLoader[Any]) -> Record:
        """An epoch of a loader begins. Returns what is known of it."""
        host, record = self.host, self._met(loader)
        # Its data set may have grown; to count a stream may be to read all of it, and once is enough.
        once = record.restarts or isinstance(loader.dataset, IterableDataset)
        if not (record.asked and once):
            self._ask_length(loader, record)
        with contextlib.suppress(TypeError):  # a list cannot be referred to weakly
            record.dataset = weakref.ref(loader.dataset)
        self._recognise(loader, record)
        kept = own_iterator(getattr(loader, "_iterator", None))
        if record.running is not None and record.running() is kept:
            record.running = None  # persistent workers: the one iterator begins anew
        host.saw_no_step()
        if record.trains or host.mode == "startup":
            host.saw_training(draws=True)
            host.epoch += 1
            host.dirty = True
        elif record.begun is None or host.steps > record.begun + 1:
            host.dirty = True  # a validation; a loader that begins anew in each step belongs to it
            host.judging.update(code for code, _ in lines_of(sys._getframe(1)))
        if self.switching and record.within and not record.runs:
            record.endless.clear()  # what is left of an epoch is made anew under a recipe too
        record.begin_epoch(host.steps)
        self._makes(record)
        return record

    def _makes(self, record: Record) -> None:
        """Workers that are begun from here on make its samples."""
        self.host.making = record.number
        self.host.told.makes(record)

    def _recognise(self, loader: DataLoader[Any], record: Record) -> None:
        """A DataLoader that is made anew for each epoch feeds the training as the one before did."""
        before = self.fed_by.get(record.where or "")
        if before is None or record.trains:
            return
        replaced = before.replaced(record, loader.dataset)
        if replaced or before.dataset() is loader.dataset:
            record.taken_for = before.line if replaced else None
            record.trains, record.remade, record.number = True, True, before.number
            record.recent, record.starts = before.recent, before.starts

    def _remember(self, record: Record) -> None:
        """Its DataLoader feeds the training."""
        record.remembered = True
        before = self.fed_by.get(record.where or "")
        if before is not None and before.starts is not record.starts:
            # One for another data set, as for each episode: their starts are all the training's.
            before.starts.take(record.starts)
            record.starts = before.starts
        data = record.dataset() if record.dataset is not None else None
        if record.where is not None and data is not None:
            self.fed_by[record.where] = Fed(
                record.number,
                record.dataset,
                type(data),
                record.length,
                record.recent,
                record.starts,
                Line() if before is None else before.line,
            )

    def serve(self, loader: DataLoader[Any], record: Record) -> Any:
        """A whole epoch from the Setup's feed, or None where the DataLoader's own is to serve."""
        feeding, feed = self.feeding, self.feeding.setup.feed
        if self.switching or feeding.make_feed is None or feed == AS_IS.feed or record.unfed:
            return None
        # Only the training's loaders were tried: another one's first batch shows whether it bears the feed.
        instead = None if record.draws else self._instead(loader, record)
        try:
            runner = feeding.runner(loader, record, feed)
        except Exception as error:
            if instead is None:
                raise
            instead(error)
            return None
        return None if runner is None else Epoch(self, record, loader, runner.epoch, instead)

    def _instead(self, loader: DataLoader[Any], record: Record) -> Instead:
        """For a loader whose feed fails at its first batch: its own, with all generators as they are now."""
        restore = restoring(*held_by(loader))

        def instead(error: Exception) -> Callable[[], Iterator[Any]]:
            restore()
            record.unfed = True
            for runner in record.runners.values():
                runner.close()
            said = f"{type(error).__name__}: {error}".splitlines()[0]
            where = f" made at {record.where}" if record.where else ""
            on_stderr(f"outpace: the DataLoader{where} gives its own batches: {said}")
            return self._own_later(loader, record)

        return instead

    def _wrap_next(self, original: Any) -> Any:
        self.plain_next, seam = original, self
        phases = self.host.phases

        @functools.wraps(original)
        def __next__(iterator: Any) -> Any:
            record = iterator.__dict__.get("_outpace")
            if record is None or get_ident() != phases.owner:
                return original(iterator)
            if seam.dry:
                if record.runs_on(iterator) and ends_here(seam.host, record, sys._getframe(1)):
                    raise StopIteration
                return untraced(lambda: seam.draw_or_rest(record, original, iterator))
            if seam.longer is not None and record.trains and record.runs_on(iterator):
                return lengthened(
                    seam.host,
                    seam.longer,
                    record,
                    lambda: seam.draw_or_rest(
                        record, original, getattr(iterator, "_outpace_more", iterator)
                    ),
                    lambda: seam.begin_again(record, iterator),
                    sys._getframe(1),
                )
            return seam.draw_or_rest(record, original, iterator)

        return __next__

    def _wrap_shutdown(self, original: Any) -> Any:
        """Workers that rest are woken before they are told to end: asleep they would not hear."""

        @functools.wraps(original)
        def _shutdown_workers(iterator: Any) -> None:
            wake(worker_pids(iterator))
            original(iterator)

        return _shutdown_workers

    def begin_again(self, record: Record, iterator: Any) -> bool:
        """Let an iterator of a DataLoader go on with the batches of another, if there is one."""
        loader = self.loader_of(record)
        if loader is not None:
            iterator._outpace_more = own_iterator(self.plain_iter(loader))
        return loader is not None

    def draw_or_rest(self, record: Record, original: Any, iterator: Any) -> Any:
        """One batch; only its phase is told where the running steps are not looked into."""
        phases = self.host.phases
        if not phases.resting:
            return self.draw(record, original, iterator)
        self.host.told.makes(record)
        phases.stack.append("input")
        self.host.drawn.gave_unseen(record)
        try:
            return original(iterator)
        except StopIteration:
            if record.trains:
                self.host.wake()
                phases.idle = "epoch_end"
            raise
        finally:
            phases.stack.pop()

    def draw(self, record: Record, original: Any, iterator: Any) -> Any:
        """One batch, timed, from whichever feed is in force."""
        host, phases = self.host, self.host.phases
        if record.trains and host.mode != "train":
            host.saw_training(draws=True)
        if record.trains and not record.remembered:
            self._remember(record)
        host.told.makes(record)
        if self.before_draw is not None:
            host.guard("loader", self.before_draw, record)
        phases.push("input")
        start = phases.mark
        try:
            record.turn_to(iterator)
            if self.switching and record.trains:
                batch = self.feeding.batch(
                    record, lambda: original(iterator), lambda: self.loader_of(record)
                )
            else:
                batch = original(iterator)
        except StopIteration:
            host.drawn.ran_dry(record)
            record.ended_after_all()
            if record.trains:
                phases.idle = "epoch_end"
            raise
        finally:
            phases.pop()
        if record.goes_round(host.steps):
            host.guard("loader", self._begin_unasked, record, iterator)
        host.guard("loader", self.note, record, batch, phases.mark - start)
        return batch

    def _begin_unasked(self, record: Record, iterator: Any) -> None:
        """An iterator that lasts, as over a sampler without end, has given the first batch of an epoch."""
        dataset = record.dataset() if record.dataset is not None else None
        if isinstance(dataset, IterableDataset):
            return  # whose length may be too small
        if record.trains:
            self.host.epoch += 1
        else:
            self.host.judging.update(code for code, _ in lines_of(sys._getframe(1)))
        self.host.dirty = True
        before = record.begun, record.steps, record.stepped
        record.begin_epoch(self.host.steps)
        record.drawn_from(iterator)
        record.turn_to(iterator, anew=True)
        record.unasked = before

    def note(self, record: Record, batch: Any, waited: int) -> None:
        """Keep what is known of a batch that was just given."""
        record.given += 1
        record.drawn += 1
        record.draws += 1
        if record.begun is not None and self.host.steps > record.begun:
            record.beside = True
        record.wait += waited
        if record.given == 1 and record.starts:
            record.starts.newest[-1].ns += waited
        self.host.drawn.gave(record)
        if self.feeding.setup.feed.pin:
            found = (tensor.untyped_storage().data_ptr() for tensor in tensors_in(batch))
            self.host.pinned = set(found)
        if self.switching and not (self.feeding.setup.free_input and record.recent):
            record.recent.see(batch)
        # The last batch of an epoch may be small.
        rest = record.draws > 1 and record.given == record.length
        if record.draws <= 2 and not rest and (record.trains or not self.host.steps):
            told = samples_of(self.loader_of(record)) if record.length != 1 else None
            self.host.batch_size = told or batch_size(batch)
        if self.on_draw is not None:
            self.on_draw(record, batch)


def samples_of(loader: DataLoader[Any] | None) -> int | None:
    """Of a batch, as a DataLoader itself or its sampler of batches tells: what is collated may begin with a
    tensor that has other rows, as the boxes of all images. None where neither does.
    """
    for one in (loader, getattr(loader, "batch_sampler", None), getattr(loader, "sampler", None)):
        size = getattr(one, "batch_size", None)
        if type(size) is int and size > 0:
            return size
    return None
