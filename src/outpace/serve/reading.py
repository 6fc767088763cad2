"""Bytes of a file at a place, for several threads and processes at once."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, final

import numpy as np

from outpace.errors import DataError


def unreadable(path: str | Path, error: Exception) -> DataError:
    """What is told of a file that the system does not give, or that is not what it should be."""
    reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return DataError(f"{path}: {reason}")


Which = tuple[int, int, int]
"""device, inode and size: what tells a file from another of its name"""


def which(descriptor: int) -> Which:
    """The file that was opened."""
    state = os.fstat(descriptor)
    return state.st_dev, state.st_ino, state.st_size


@final
class ReadAt:
    """A file that each process opens when it first reads, and reads by pread.

    That moves no position which other threads would see. ``keep``: whether it stays open; very many
    files could not. A fork reads the file that its parent read, or none; ``first``: the one that is to be
    read, else that which is opened first.
    """

    def __init__(self, path: str | Path, keep: bool = True, first: Which | None = None) -> None:
        self.path = path
        self.keep = keep
        self._open: dict[int, int] = {}
        """process -> its descriptor"""
        self._first = first
        """another may have its name by now"""

    def __reduce__(self) -> Any:
        return ReadAt, (self.path, self.keep)

    def __call__(self, offset: int, size: int) -> memoryview:
        """So many bytes from there on, in memory that is the caller's to write to.

        Raises DataError where there are fewer.
        """
        try:
            if not self.keep:
                with open(self.path, "rb", buffering=0) as file:
                    self._check(file.fileno())
                    return self._read(file.fileno(), offset, size)
            return self._read(self._descriptor(), offset, size)
        except (OSError, ValueError, OverflowError, MemoryError) as error:
            raise unreadable(self.path, error) from error  # also of a place that no file can have

    def _descriptor(self) -> int:
        """This process's own."""
        found = self._open.get(os.getpid())
        if found is None:
            opened = os.open(self.path, os.O_RDONLY)
            try:
                self._check(opened)
            except BaseException:
                os.close(opened)
                raise
            found = self._open.setdefault(os.getpid(), opened)
            if found != opened:  # another thread was first
                os.close(opened)
        return found

    def _check(self, descriptor: int) -> None:
        """Raises DataError where it is not the file that was opened first."""
        found = which(descriptor)
        self._first = self._first or found
        if found != self._first:
            raise DataError(
                f"{self.path}: it was replaced since it was opened", "make the Loader anew"
            )

    def _read(self, descriptor: int, offset: int, size: int) -> memoryview:
        data = np.empty(size, np.uint8).data
        done = 0
        while done < size:  # the system may give less at once
            more = os.preadv(descriptor, [data[done:]], offset + done)
            if not more:
                raise DataError(f"{self.path}: ends before byte {offset + size:,}")
            done += more
        return data

    def __del__(self) -> None:
        try:
            os.close(self._open[os.getpid()])
        except Exception:  # none of its own, or the interpreter ends
            return
