"""DataLoader: how it was built, what drawing a batch costs, and batches made in another way.

Three places are taken: construction (for its line), ``__iter__`` (an epoch begins) and the
iterator's ``__next__`` (a batch is drawn). In an experiment each arm draws from a feed of its own,
made from the same data set, sampler and collate function; an epoch still gives exactly as many
batches as the script expects. Feeds are made by ``make_feed``, which `outpace.serve` provides.
"""

from __future__ import annotations

import dis
import functools
import sys
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from threading import get_ident
from types import FrameType
from typing import Any, Protocol

from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _BaseDataLoaderIter, _MultiProcessingDataLoaderIter

from outpace.seams.batch import batch_size, scale_batch
from outpace.seams.host import Host
from outpace.seams.resting import rest, wake, worker_pids
from outpace.seams.setup import AS_IS, Feed, Setup
from outpace.seams.where import caller, is_user_file

RECENT = 3
"""batches kept to be given again"""


class Runner(Protocol):
    """A feed at work on one DataLoader."""

    def epoch(self) -> Iterator[Any]:
        """The batches of one epoch."""

    def pause(self) -> None:
        """Stop working ahead."""

    def resume(self) -> None:
        """Work ahead again."""

    def close(self) -> None:
        """End threads and processes."""


class Longer(Protocol):
    """Lets an epoch of training go on with the batches of another."""

    def drawn_in(self, frame: FrameType) -> None:
        """A batch is drawn there."""

    def more(self) -> bool:
        """Whether the epoch whose batches are all drawn goes on."""


MakeFeed = Callable[[DataLoader[Any], Feed], Runner]


@dataclass
class Record:
    """What is known of one DataLoader."""

    where: str | None = None
    trains: bool = False
    length: int | None = None
    epochs: int = 0
    draws: int = 0
    given: int = 0
    """batches given in this epoch"""
    wait: int = 0
    """ns waited for the batches of this epoch and those before"""
    starts: list[int] = field(default_factory=list)
    """ns of each epoch's start: making the iterator and drawing the first batch"""
    recent: deque[Any] = field(default_factory=lambda: deque(maxlen=RECENT))
    scaled: dict[float, list[Any]] = field(default_factory=dict)
    runners: dict[Feed, Runner] = field(default_factory=dict)
    endless: dict[Feed, Iterator[Any]] = field(default_factory=dict)
    iterator: Any = None
    """the DataLoader's own iterator of this epoch, weakly: it ends its workers when it is let go"""
    turn: int = 0

    @property
    def own(self) -> Any:
        """The DataLoader's own iterator of this epoch, while the script holds it."""
        return None if self.iterator is None else self.iterator()


class LoaderSeam:
    """Stands at DataLoader and its iterators."""

    name = "loader"

    def __init__(
        self, host: Host, make_feed: MakeFeed | None = None, *, switching: bool = False
    ) -> None:
        self.host = host
        self.make_feed = make_feed
        self.switching = switching
        """arms alternate inside of an epoch; else a feed serves whole epochs of every loader"""
        self.setup = AS_IS
        self.records: weakref.WeakKeyDictionary[DataLoader[Any], Record] = (
            weakref.WeakKeyDictionary()
        )
        self.newest: DataLoader[Any] | None = None
        self.on_draw: Callable[[Record, Any], None] | None = None
        """told of each batch that is given, while something is being probed"""
        self.dry = False
        """epochs of training end, the later ones after one batch"""
        self.longer: Longer | None = None
        self.originals: dict[str, Any] = {}

    # --- putting in and taking out -------------------------------------------------------------

    def install(self) -> None:
        """Put the seam in."""
        if self.originals:
            return
        self.originals = {
            "init": DataLoader.__init__,
            "iter": DataLoader.__iter__,
            "next": _BaseDataLoaderIter.__next__,
        }
        self._wrap_init()
        self._wrap_iter()
        self._wrap_next()
        if self.switching:
            self._wrap_shutdown()

    def remove(self) -> None:
        """Take it out."""
        if self.originals:
            DataLoader.__init__ = self.originals["init"]  # type: ignore[method-assign]
            DataLoader.__iter__ = self.originals["iter"]  # type: ignore[method-assign]
            _BaseDataLoaderIter.__next__ = self.originals["next"]  # type: ignore[method-assign]
            if "shutdown" in self.originals:
                _MultiProcessingDataLoaderIter._shutdown_workers = self.originals["shutdown"]  # type: ignore[method-assign]
            self.originals = {}

    def reconcile(self, setup: Setup) -> None:
        """Let the feed of ``setup`` work and all others rest."""
        before, self.setup = self.setup, setup
        if not self.switching or (
            before.feed == setup.feed and before.free_input == setup.free_input
        ):
            return
        for record in list(self.records.values()):
            if not record.trains:
                continue
            resting = setup.free_input
            for feed, runner in record.runners.items():
                if feed == setup.feed and not resting:
                    runner.resume()
                else:
                    runner.pause()
            self.rest(record)

    def rest(self, record: Record) -> None:
        """The script's own workers rest while another arm is on."""
        own, setup = record.own, self.setup
        if own is not None and record.trains:
            at_work = setup.feed == AS_IS.feed and not setup.free_input
            (wake if at_work else rest)(worker_pids(own))

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
        record = self.records.get(loader)
        if record is None:
            record = self.records[loader] = Record()
        if record.length is None:
            # A loader notes that its length was asked for, and warns where it then gives more.
            asked = getattr(loader, "_IterableDataset_len_called", None)
            try:
                record.length = len(loader)
            except Exception:
                record.length = None
            loader._IterableDataset_len_called = asked
        return record

    def _wrap_init(self) -> None:
        original, seam = self.originals["init"], self

        @functools.wraps(original)
        def __init__(loader: DataLoader[Any], *args: Any, **kwargs: Any) -> None:
            original(loader, *args, **kwargs)
            where = seam.host.guard("loader", caller)
            seam.records[loader] = Record(where=where)

        DataLoader.__init__ = __init__  # type: ignore[method-assign, assignment]

    def _wrap_iter(self) -> None:
        original, seam, host = self.originals["iter"], self, self.host
        phases = host.phases

        @functools.wraps(original)
        def __iter__(loader: DataLoader[Any]) -> Any:
            if get_ident() != phases.owner or (phases.stack and phases.stack[-1] == "input"):
                return original(loader)
            host.wake()
            record = seam.record_of(loader)
            host.guard("loader", seam.begin_epoch, loader, record)
            phases.push("input")
            start = phases.mark
            try:
                made = seam.serve(loader, record)
                if made is None:
                    if record.own is not None:
                        wake(worker_pids(record.own))  # persistent ones answer to a new epoch
                    made = original(loader)
                    made._outpace = record
                    record.iterator = weakref.ref(made)
                    if seam.switching:
                        made._outpace_loader = loader  # feeds are made of it in mid-epoch
                        seam.rest(record)
                return made
            finally:
                phases.pop()
                record.starts.append(phases.mark - start)

        DataLoader.__iter__ = __iter__  # type: ignore[method-assign]

    def begin_epoch(self, loader: DataLoader[Any], record: Record) -> None:
        """An epoch of a loader begins."""
        host = self.host
        if record.trains or host.mode == "startup":
            host.saw_training()
            host.epoch += 1
            host.dirty = True
        record.epochs += 1
        record.given = 0
        self.newest = loader

    def serve(self, loader: DataLoader[Any], record: Record) -> Any:
        """A whole epoch from the Setup's feed, or None where the DataLoader's own is to serve."""
        if self.switching or self.make_feed is None or self.setup.feed == AS_IS.feed:
            return None
        runner = self._runner(loader, record, self.setup.feed)
        return None if runner is None else Epoch(self, record, runner.epoch)

    def _runner(self, loader: DataLoader[Any], record: Record, feed: Feed) -> Runner | None:
        if feed not in record.runners and self.make_feed is not None:
            try:
                record.runners[feed] = self.make_feed(loader, feed)
            except NotImplementedError:
                return None
        return record.runners.get(feed)

    def _wrap_next(self) -> None:
        original, seam = self.originals["next"], self
        phases = self.host.phases

        @functools.wraps(original)
        def __next__(iterator: Any) -> Any:
            record = iterator.__dict__.get("_outpace")
            if record is None or get_ident() != phases.owner:
                return original(iterator)
            if seam.dry and seam.ends(record, sys._getframe(1)):
                raise StopIteration
            if seam.longer is not None and record.trains:
                return seam.lengthened(
                    record,
                    lambda: seam.draw_or_rest(
                        record, original, getattr(iterator, "_outpace_more", iterator)
                    ),
                    lambda: seam.begin_again(record, iterator),
                    sys._getframe(1),
                )
            return seam.draw_or_rest(record, original, iterator)

        _BaseDataLoaderIter.__next__ = __next__  # type: ignore[method-assign, assignment]

    def _wrap_shutdown(self) -> None:
        """Workers that rest are woken before they are told to end: asleep they would not hear."""
        self.originals["shutdown"] = original = _MultiProcessingDataLoaderIter._shutdown_workers

        @functools.wraps(original)
        def _shutdown_workers(iterator: Any) -> None:
            wake(worker_pids(iterator))
            original(iterator)

        _MultiProcessingDataLoaderIter._shutdown_workers = _shutdown_workers  # type: ignore[method-assign, assignment]

    def begin_again(self, record: Record, iterator: Any) -> None:
        """Let an iterator of a DataLoader go on with the batches of another."""
        loader = next(k for k, v in self.records.items() if v is record)
        iterator._outpace_more = self.originals["iter"](loader)

    def draw_or_rest(self, record: Record, original: Any, iterator: Any) -> Any:
        """One batch; only its phase is told where the running steps are not looked into."""
        phases = self.host.phases
        if not phases.resting:
            return self.draw(record, original, iterator)
        phases.stack.append("input")
        try:
            return original(iterator)
        finally:
            phases.stack.pop()

    def lengthened(
        self,
        record: Record,
        draw: Callable[[], Any],
        begin_again: Callable[[], None],
        asking: FrameType,
    ) -> Any:
        """One batch, of the next epoch where this one has none left and is to go on."""
        guard, longer = self.host.guard, self.longer
        assert longer is not None
        guard("loader", longer.drawn_in, asking)
        try:
            return draw()
        except StopIteration:
            if not guard("loader", longer.more):
                raise
        begin_again()
        record.given = 0
        return draw()

    def draw(self, record: Record, original: Any, iterator: Any) -> Any:
        """One batch, timed, from whichever feed is in force."""
        host, phases = self.host, self.host.phases
        if record.trains and host.mode != "train":
            host.saw_training()
        phases.push("input")
        start = phases.mark
        try:
            if self.switching and record.trains:
                batch = self._switched(record, original, iterator)
            else:
                batch = original(iterator)
        finally:
            phases.pop()
        self.note(record, batch, phases.mark - start)
        return batch

    def ends(self, record: Record, asking: FrameType) -> bool:
        """Whether an epoch that runs dry ends here, after a batch.

        Of the user's lines only a ``for`` can be told so; libraries know what to make of it.
        """
        if not record.trains or not record.given:
            return False
        operation = dis.opname[asking.f_code.co_code[asking.f_lasti]]
        return operation == "FOR_ITER" or not is_user_file(asking.f_code.co_filename)

    def note(self, record: Record, batch: Any, waited: int) -> None:
        """Keep what is known of a batch that was just given."""
        record.given += 1
        record.draws += 1
        if record.given == 1:
            if record.starts:
                record.starts[-1] += waited
        else:
            record.wait += waited
        self.host.last_record = record
        if self.switching and not self.setup.free_input:
            record.recent.append(batch)
        if record.draws <= 2 and (record.trains or not self.host.steps):
            self.host.batch_size = batch_size(batch)
        if self.on_draw is not None:
            self.on_draw(record, batch)

    def _switched(self, record: Record, original: Any, iterator: Any) -> Any:
        if record.length is not None and record.given >= record.length:
            raise StopIteration
        setup = self.setup
        if setup.free_input and record.recent:
            return self._again(record, setup.batch_scale)
        if setup.feed == AS_IS.feed:
            return original(iterator)
        return self._from_feed(record, setup.feed)

    def _again(self, record: Record, scale: float) -> Any:
        batches: Any = record.recent
        if scale != 1.0:
            if scale not in record.scaled:
                record.scaled[scale] = [scale_batch(b, scale) for b in record.recent]
            batches = record.scaled[scale]
        record.turn += 1
        return batches[record.turn % len(batches)]

    def _from_feed(self, record: Record, feed: Feed) -> Any:
        loader = next(k for k, v in self.records.items() if v is record)
        runner = self._runner(loader, record, feed)
        if runner is None:
            raise NotImplementedError(f"this data set cannot be fed by {feed}")
        for _ in range(2):
            if feed not in record.endless:
                record.endless[feed] = iter(runner.epoch())
            try:
                return next(record.endless[feed])
            except StopIteration:
                del record.endless[feed]
        raise StopIteration


class Epoch:
    """One epoch's batches out of a feed, as the iterator of a DataLoader would give them."""

    def __init__(
        self, seam: LoaderSeam, record: Record, epoch: Callable[[], Iterator[Any]]
    ) -> None:
        self.seam = seam
        self.record = record
        self.epoch = epoch
        self.batches = epoch()

    def __iter__(self) -> Epoch:
        return self

    def __len__(self) -> int:
        if self.record.length is None:
            raise TypeError("this DataLoader has no length")
        return self.record.length

    def __next__(self) -> Any:
        if self.seam.dry and self.seam.ends(self.record, sys._getframe(1)):
            raise StopIteration
        if self.seam.longer is not None and self.record.trains:
            return self.seam.lengthened(self.record, self.draw, self.begin_again, sys._getframe(1))
        return self.draw()

    def draw(self) -> Any:
        """One batch, timed."""
        return self.seam.draw(self.record, lambda _: next(self.batches), None)

    def begin_again(self) -> None:
        """Go on with the batches of another epoch."""
        self.batches = self.epoch()
