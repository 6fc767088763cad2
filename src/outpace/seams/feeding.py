"""Batches of a DataLoader that are made in another way than its own, or given again.

In an experiment each arm draws from a feed of its own, made from the same data set, sampler and
collate function; an epoch still gives exactly as many batches as the script expects. Under a recipe
one feed serves whole epochs. Feeds are made by ``make_feed``, which `outpace.serve` provides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from torch.utils.data import DataLoader

from outpace.seams.loader_record import Record, Runner
from outpace.seams.queued import queued
from outpace.seams.resting import rest, wake, worker_pids
from outpace.seams.setup import AS_IS, Feed, Setup

MakeFeed = Callable[[DataLoader[Any], Feed], Runner]


class Feeding:
    """Gives batches as the Setup in force says."""

    def __init__(self, make_feed: MakeFeed | None) -> None:
        self.make_feed = make_feed
        self.setup = AS_IS

    def let_work(self, records: Iterable[Record]) -> None:
        """Another loader begins an epoch, whose workers may wait for a lock that one of these holds: until
        the training draws its next batch its own workers do not rest.
        """
        for record in records:
            if record.trains and record.own is not None:
                wake(worker_pids(record.own))
                record.woken = True

    def switch(self, setup: Setup, records: list[Record]) -> None:
        """Let the feed of ``setup`` work and all others rest."""
        before, self.setup = self.setup, setup
        if before.feed == setup.feed and before.free_input == setup.free_input:
            return
        for record in records:
            if not record.trains:
                continue
            for feed, runner in record.runners.items():
                if feed == setup.feed and not setup.free_input:
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

    def queued(self, record: Record) -> int | None:
        """Batches that are made for the Setup in force and were not drawn yet; None: no more are made."""
        setup = self.setup
        if setup.free_input:
            return 0
        if setup.feed == AS_IS.feed:
            return queued(record.own)
        runner = record.runners.get(setup.feed)
        return 0 if runner is None else runner.queued()

    def runner(self, loader: DataLoader[Any], record: Record, feed: Feed) -> Runner | None:
        """A feed at work on a DataLoader; None where its data set cannot be fed so."""
        parts = loader.collate_fn, loader.worker_init_fn, loader.generator, loader.timeout
        # Workers that last have what they began with, the script's own too.
        made = record.runners or record.refused
        if made and parts != record.parts and not loader.persistent_workers:
            record.runners, record.endless = {}, {}  # an epoch under way draws to its end
            record.refused = set()
        record.parts = parts
        if feed in record.refused:
            return None
        if feed not in record.runners and self.make_feed is not None:
            try:
                record.runners[feed] = self.make_feed(loader, feed)
            except NotImplementedError:
                record.refused.add(feed)
                return None
        runner = record.runners.get(feed)
        if runner is not None and runner.gave_up and loader.num_workers and self.make_feed:
            runner = record.runners[feed] = self.make_feed(loader, as_own(loader, feed.pin))
        return runner

    def batch(
        self,
        record: Record,
        own: Callable[[], Any],
        loader: Callable[[], DataLoader[Any] | None],
    ) -> Any:
        """One batch, inside of an epoch; ``own`` draws from the script's ``loader`` itself."""
        setup = self.setup
        if record.woken:
            record.woken = False
            self.rest(record)
        again = bool(setup.free_input and record.recent)
        record.mixed |= again or setup.feed != AS_IS.feed
        if record.length is not None and record.given >= record.length:
            if keeps_iterator(loader(), record):
                record.given = 0
            elif record.mixed:  # else its own iterator knows best
                raise StopIteration
        if again:
            return record.recent.again(setup.batch_scale)
        if setup.feed == AS_IS.feed:
            return own()
        return self._from_feed(loader(), record, setup.feed)

    def _from_feed(self, loader: DataLoader[Any] | None, record: Record, feed: Feed) -> Any:
        runner = self.runner(loader, record, feed) if loader is not None else None
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


def as_own(loader: DataLoader[Any], pin: bool) -> Feed:
    """A feed of as many workers as a DataLoader has itself."""
    return Feed(
        executor="processes",
        workers=loader.num_workers,
        prefetch=loader.prefetch_factor or 2,
        persistent=loader.persistent_workers,
        pin=pin,
    )


def keeps_iterator(loader: DataLoader[Any] | None, record: Record) -> bool:
    """Whether a DataLoader draws all of its epochs from one iterator, and knows where one ends."""
    own = record.own
    kept = vars(loader).items() if loader is not None else ()
    return own is not None and any(v is own for k, v in kept if k != "_iterator")
