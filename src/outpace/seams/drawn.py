"""Which DataLoader's batches are learnt from, and which ones are there to validate on.

The batch drawn last need not be the one that a step learns from: a script may validate between drawing a
batch and learning from it. Loaders are known weakly: what is known of one ends with it.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator

from outpace.seams.loader_record import Record

Weak = weakref.ref[Record] | None


class Drawn:
    """The loaders that gave batches lately."""

    def __init__(self) -> None:
        self._last: Weak = None
        self._learnt_from: Weak = None
        self._before: Weak = None
        """the one that was learnt from before it"""
        self._unseen: Weak = None
        """the one that gave a batch to a step that was not looked into"""
        self._given: dict[int, weakref.ref[Record]] = {}
        """those that gave a batch to the running step, by their id; the one that gave last is the last"""
        self._given_before: dict[int, weakref.ref[Record]] = {}
        """the same of the step before"""

    @property
    def last(self) -> Record | None:
        """The loader that a batch was last drawn from, whatever for."""
        return _alive(self._last)

    @property
    def learnt_from(self) -> Record | None:
        """The same, of those that are not there to validate on."""
        return _alive(self._learnt_from)

    @learnt_from.setter
    def learnt_from(self, record: Record | None) -> None:
        self._learnt_from = None if record is None else weakref.ref(record)

    def gave(self, record: Record) -> None:
        """A loader gave a batch."""
        self._given.pop(id(record), None)
        self._last = self._given[id(record)] = weakref.ref(record)
        if record is not self.learnt_from and not record.judges:
            self._before, self._learnt_from = self._learnt_from, self._last

    def gave_unseen(self, record: Record) -> None:
        """A loader gave a batch to a step that is not looked into."""
        self._unseen = weakref.ref(record)

    def ran_dry(self, record: Record) -> None:
        """A loader has none left in its epoch: nothing more is learnt from those it gave.

        Where nothing was learnt from any, it was one to validate on: training goes on with the one before.
        """
        self._given.pop(id(record), None)
        if record is self.learnt_from and not record.trains and _alive(self._before) is not None:
            self._learnt_from = self._before

    def step_ended(self) -> None:
        """Of a step that was looked into."""
        for record in (self.learnt_from, *map(_alive, self._given.values())):
            if record is not None:
                record.drawn = 0
        self._unseen, self._given, self._given_before = None, {}, self._given

    def set_apart(self) -> None:
        """The batch drawn last is validated on: so are its loader's others, unless it is known to train."""
        record = self.learnt_from
        if record is None or record is not self.last:
            return
        record.mistaken()
        if not record.trains:
            record.judges, self._learnt_from = True, self._before

    def learn(self) -> Record | None:
        """The loader that a backward pass learnt from: it trains, and so do those that give to each step."""
        record = self.learnt_from
        if record is None or not (record.drawn or record is _alive(self._unseen)):
            # What was judged by before may be trained on all the same.
            record = next(self._givers(), None)
        if record is not None and not record.trains:  # of those that gave, one is known to train
            record = next((each for each in self._givers() if each.trains), record)
        if record is not None:
            for each in (record, *self._beside()):
                each.trains, each.judges, each.taken_for = True, False, None
            self.learnt_from = record
        return record

    def _givers(self) -> Iterator[Record]:
        """Those that gave a batch to this step, the last one first."""
        return filter(None, map(_alive, reversed(self._given.values())))

    def _beside(self) -> Iterator[Record]:
        """Those that gave a batch to this step and to the one before: once may be but a look at a batch."""
        for key, reference in self._given.items():
            if self._given_before.get(key) is reference:
                record = reference()
                if record is not None and not record.judges:
                    yield record


def _alive(reference: Weak) -> Record | None:
    return None if reference is None else reference()
