"""Whether the samples that are being made are the training's, which workers are told as soon as it is known.

A loader is known to train once a step has learnt from a batch of it. Workers that were begun before look it
up in memory that they share with the training process.
"""

from __future__ import annotations

import mmap

from outpace.seams.loader_record import Record

MOST = 1 << 16
"""loaders that are told of; later ones are told to train never"""


class Told:
    """Of which DataLoader samples are being made, and which are known to train."""

    def __init__(self) -> None:
        self._known = mmap.mmap(-1, MOST)
        self._place: int | None = None

    def makes(self, record: Record) -> None:
        """Samples are made for this loader from here on, here and by the workers that are begun."""
        self._place = record.place
        if record.place < MOST:
            self._known[record.place] = record.trains and record.taken_for is None

    def for_training(self) -> bool:
        """Whether they are known to be the training's."""
        return self._place is not None and self._place < MOST and self._known[self._place] == 1
