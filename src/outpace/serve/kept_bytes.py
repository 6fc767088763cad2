"""How many bytes a process and those that are forked from it keep together, so that one limit holds for all.

Each writes what it keeps into a place of its own, in memory that they share. What one inherits is its
parent's, which its parent counts. Of two that take the last room at the same moment neither may get it.
"""

from __future__ import annotations

import mmap
import os

from torch.utils.data import get_worker_info

PLACES = 512


class KeptBytes:
    """Counts what is kept, here and elsewhere."""

    def __init__(self) -> None:
        self._cells = memoryview(mmap.mmap(-1, 2 * 8 * PLACES)).cast("q")
        """of each process its number, and its bytes"""
        self._made_by = self._pid = os.getpid()
        self._cells[0] = self._pid
        self._place = 0

    @property
    def own(self) -> int:
        """Bytes that this process keeps, less what it inherited."""
        return self._cells[self._at() + 1] if self._pid == os.getpid() else 0

    def take(self, size: int, limit: int) -> bool:
        """Whether so many more are within the limit of all; they are counted then."""
        worker = get_worker_info()
        if worker is not None and self._made_by == os.getpid():
            limit //= worker.num_workers  # it was not forked, and knows nothing of the others
        at = self._at()
        self._cells[at + 1] += size
        if self._all() > limit and self._all(living=True) > limit:
            self._cells[at + 1] -= size
            return False
        return True

    def give_back(self, size: int) -> None:
        """What was taken is not kept."""
        self._cells[self._at() + 1] -= size

    def _at(self) -> int:
        """The own place, in a process that was forked a new one: of several at once each begins elsewhere."""
        if self._pid != os.getpid():
            self._pid = os.getpid()
            places = (2 * ((self._pid + i) % PLACES) for i in range(PLACES))
            self._place = next((at for at in places if not self._is_taken(at)), self._place)
            self._cells[self._place] = self._pid
        return self._place

    def _is_taken(self, at: int) -> bool:
        """Also by one that ended: an epoch's workers are others than those before."""
        if self._cells[at] and not _lives(self._cells[at]):
            self._cells[at + 1] = 0
            return False
        return bool(self._cells[at])

    def _all(self, *, living: bool = False) -> int:
        """Bytes of all processes; ``living``: those that ended have none any more."""
        for at in range(0, 2 * PLACES, 2) if living else ():
            self._is_taken(at)
        return sum(self._cells[1::2])


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError as error:
        return not isinstance(error, ProcessLookupError)
    return True
