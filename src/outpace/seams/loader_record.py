"""What is known of one DataLoader, and the feeds that were made of it."""

from __future__ import annotations

import itertools
import math
import weakref
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Protocol, final

from outpace.seams.recent import Recent
from outpace.seams.setup import Feed

FIRST = 0.75
"""share of batches; where a script also looks at a batch in each step it is half of them"""
MOST_STARTS = 4096
"""that are kept: a script may make an iterator for each step"""


class Runner(Protocol):
    """A feed at work on one DataLoader."""

    @property
    def gave_up(self) -> bool:
        """Whether it makes batches item by item in this process, as it was not to."""

    def epoch(self) -> Iterator[Any]:
        """The batches of one epoch."""

    def pause(self) -> None:
        """Stop working ahead."""

    def resume(self) -> None:
        """Work ahead again."""

    def pids(self) -> list[int]:
        """Worker processes at work."""

    def queued(self) -> int | None:
        """Batches that are made and were not drawn yet; None: no more are made in this epoch."""

    def close(self) -> None:
        """End threads and processes."""


@dataclass
class Line:
    """What is known of a line that makes DataLoaders."""

    mixed: bool = False
    """of those for training, and of others"""


@dataclass
class Start:
    """An epoch's: ns of making the iterator and drawing the first batch. ``own``: as the script has it, and
    not in an arm that has another input, or a free one.
    """

    ns: int
    own: bool


@final
class Starts:
    """Of a training's epochs: the newest, and how many there were."""

    def __init__(self, *starts: Start) -> None:
        self.newest = deque(starts, MOST_STARTS)
        self.count = len(starts)

    def __len__(self) -> int:
        return self.count

    def append(self, start: Start) -> None:
        """One more."""
        self.newest.append(start)
        self.count += 1

    def take(self, others: Starts) -> None:
        """Those of another DataLoader too."""
        self.newest.extend(others.newest)
        self.count += others.count

    def pop(self) -> Start:
        """The newest is none of them."""
        self.count -= 1
        return self.newest.pop()


@dataclass
class Record:
    """What is known of one DataLoader."""

    number: int = 0
    """in the order in which DataLoaders were met; of one that is made anew for each epoch the first one's"""
    where: str | None = None
    place: int = field(default_factory=itertools.count().__next__)
    """another one for each"""
    trains: bool = False
    woken: bool = False
    """its own workers, which are to rest, were let work"""
    remade: bool = False
    """of the same data set as the one before"""
    remembered: bool = False
    """as one that trains, by where it was made"""
    taken_for: Line | None = None
    """it is over other samples than the one that this line made before, and taken for the training's"""
    beside: bool = False
    """batches were drawn between steps of the training, as from a second loader that feeds it"""
    judges: bool = False
    """its batches are there to validate on"""
    interrupted: bool = False
    """a validation came between two batches of an epoch"""
    length: int | None = None
    """batches of an epoch, as the DataLoader told at its begin; None: it does not know"""
    asked: bool = False
    """for its length"""
    dataset: Any = None
    """the DataLoader's, weakly; None where it cannot be referred to so"""
    epochs: int = 0
    draws: int = 0
    given: int = 0
    """batches given in this epoch"""
    drawn: int = 0
    """batches given in the running step"""
    begun: int | None = 0
    """steps of the training before this epoch; None where its end may go by unseen"""
    unasked: tuple[int | None, int, int] | None = None
    """of an epoch whose iterator was not asked for: `begun`, `steps` and `stepped` before it"""
    longer: bool = False
    """epochs have more batches than it tells"""
    steps: int = 0
    """of the training, in its epochs that are over"""
    stepped: int = 0
    """epochs that those steps are of"""
    wait: int = 0
    """ns waited for all of its batches"""
    starts: Starts = field(default_factory=Starts)
    recent: Recent = field(default_factory=Recent)
    runners: dict[Feed, Runner] = field(default_factory=dict)
    refused: set[Feed] = field(default_factory=set)
    """feeds that it does not bear: to try one costs samples"""
    unfed: bool = False
    """no feed serves it: one has failed to"""
    parts: tuple[Any, ...] = ()
    """of the DataLoader, that a script may set between epochs: what the runners were made of"""
    endless: dict[Feed, Iterator[Any]] = field(default_factory=dict)
    iterator: Any = None
    """the DataLoader's own iterator of this epoch, weakly: it ends its workers when it is let go"""
    ahead: int = 0
    """batches given in this epoch that the own iterator did not make, when it was last looked at"""
    mixed: bool = False
    """others than the DataLoader's own were among them"""
    running: Any = None
    """what the script draws this epoch's batches from, weakly"""
    counted: Any = None
    """what gave the batches that are counted, weakly: a script may draw from several in turns"""

    @property
    def own_starts(self) -> list[Start]:
        """Those of epochs that began as the script has them; all where none did."""
        newest = list(self.starts.newest)
        return [start for start in newest if start.own] or newest

    @property
    def anew(self) -> bool:
        """Whether each epoch has one that the same line makes: their starts are among these."""
        return self.remade or (self.epochs < 2 and len(self.starts) > self.epochs)

    @property
    def restarts(self) -> bool:
        """Whether nearly each of its batches is the first of an iterator that was made for it."""
        return len(self.starts) > FIRST * self.draws

    @property
    def runs(self) -> bool:
        """Whether the script may draw more of this epoch's batches. Iterators may be kept after the last."""
        over = self.length is not None and self.given >= self.length
        return not over and self.running is not None and self.running() is not None

    def runs_on(self, iterator: Any) -> bool:
        """Whether the script draws this epoch's batches from there: not where it looks at some meanwhile."""
        return self.running is None or self.running() in (None, iterator)

    @property
    def within(self) -> bool:
        """Whether this epoch's first batch was given, and its last was not."""
        return self.given > 0 and (self.length is None or self.given < self.length)

    def goes_round(self, steps: int) -> bool:
        """Whether a batch that was given now, after so many steps of the training, is the first of an epoch
        whose iterator was not asked for then: it was made before, or has given all that an epoch has.
        """
        if self.given:
            return not self.longer and self.length is not None and self.given >= self.length
        return self.begun is not None and steps > self.begun

    def ended_after_all(self) -> None:
        """An epoch is over whose iterator has no more: it had but some batches more than it had told."""
        if self.unasked is not None:
            self.begun, self.steps, self.stepped = self.unasked
            self.unasked, self.longer = None, True

    def mistaken(self) -> None:
        """Where its line was all that told that it trains: it does not."""
        if self.taken_for is not None:
            self.taken_for.mixed, self.taken_for, self.trains = True, None, False
            self.recent = Recent()
            self.starts = Starts(self.starts.pop()) if self.starts else Starts()

    def begin_epoch(self, steps: int) -> None:
        """An epoch begins, after so many steps of the training."""
        if not self.runs:  # else some batches are looked at in the midst of it
            if self.epochs and self.begun is not None and steps > self.begun:
                self.steps += steps - self.begun
                self.stepped += 1
            self.begun, self.running = steps, None
        self.epochs += 1
        self.unasked = None
        self._lay_by()
        self.given, self.ahead, self.mixed, self.counted = 0, 0, False, None

    def drawn_from(self, made: Any) -> None:
        """The script draws the batches of the epoch that begins from there."""
        if not self.runs:
            self.running = weakref.ref(made)
        self.turn_to(made, anew=True)

    def turn_to(self, iterator: Any, *, anew: bool = False) -> None:
        """Count the batches of this one from here on; ``anew``: it has given none yet."""
        if self.counted is not None and self.counted() is iterator and not anew:
            return
        self._lay_by()
        counts = (0, False) if anew else getattr(iterator, "_outpace_counts", (0, False))
        self.given, self.mixed = counts
        self.counted = weakref.ref(iterator)

    def _lay_by(self) -> None:
        if self.counted is not None and (before := self.counted()) is not None:
            before._outpace_counts = self.given, self.mixed

    def look_away(self) -> None:
        """Batches are given unseen from here on: as many as are left of the epoch, and no more."""
        self.ahead = self.given - self._made
        drawn = getattr(self.own, "_sampler_iter", None)
        if drawn is not None and self.length is not None and self.ahead > 0:
            skipped = sum(1 for _ in islice(drawn, self.ahead))
            self.own._num_yielded += skipped
            self.ahead -= skipped

    def look_again(self) -> None:
        """Count those that the DataLoader's own iterator gave unseen."""
        if self.own is not None:
            seen, self.given = self.given, self._made + self.ahead
            self.draws += self.given - seen

    @property
    def _made(self) -> int:
        return getattr(self.own, "_num_yielded", 0)

    def steps_of_epoch(self, micro_steps: float) -> float | None:
        """Steps in an epoch, as those that are over had; else by its batches. None: not known."""
        if self.stepped:
            return self.steps / self.stepped
        return None if self.length is None else math.ceil(self.length / max(1.0, micro_steps))

    @property
    def own(self) -> Any:
        """The DataLoader's own iterator of this epoch, while the script holds it."""
        return None if self.iterator is None else self.iterator()
