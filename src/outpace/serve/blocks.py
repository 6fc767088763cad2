"""Checksums of a file that is mapped: a CRC-32 of each block of 64 KiB, looked at when first touched.

They are computed from what the file holds once it is written.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from outpace.errors import DataError
from outpace.serve.flags import shared_flags
from outpace.serve.meta import load_arrays
from outpace.serve.reading import ReadAt, unreadable

FILE = "checksums.npz"
BLOCK = 1 << 16
MOST = 0.8
"""of the blocks, after which the others are looked at as well"""


@final
class Blocks:
    """The blocks of one file, and which of them were found as they were written."""

    def __init__(self, path: Path, checksums: NDArray[np.uint32]) -> None:
        self.path = path
        self.checksums = checksums
        self.checked = shared_flags(len(checksums))
        self.complete = False
        """whether all were"""
        self._read = ReadAt(path)
        try:
            self.size = path.stat().st_size
        except OSError as error:
            raise unreadable(path, error) from error
        if -(-self.size // BLOCK) != len(checksums):
            raise DataError(
                f"{path}: {self.size:,} bytes, which is not what was written", "pack it anew"
            )
        self._read(0, 0)  # opened: what its checksums are of is read from here on

    def check_one(self, start: int, size: int) -> None:
        """`check` of a single stretch, in little time where its blocks were looked at before."""
        if not self.checked[start // BLOCK : (start + size - 1) // BLOCK + 1].all():
            self.check(np.array([start]), size)

    def check(self, starts: NDArray[np.int64], size: int) -> None:
        """Look at the blocks of stretches of ``size`` bytes. Raises DataError for a damaged one."""
        if self.complete or not size:
            return
        first, last = starts // BLOCK, (starts + size - 1) // BLOCK
        if size <= BLOCK and self.checked[first].all() and self.checked[last].all():
            return  # as most are before long
        span = np.arange(int((last - first).max(initial=0)) + 1)
        blocks = np.minimum(first[:, None] + span, last[:, None])
        blocks = blocks[~self.checked[blocks]]
        if not blocks.size:
            return
        self._look(np.unique(blocks))

    def finish(self) -> bool:
        """Look at the few that are left, where most were found right; whether all are."""
        if not self.complete and self.checked.mean() > MOST:
            self._look(np.flatnonzero(~self.checked))
        return self.complete

    def _look(self, blocks: NDArray[np.int64]) -> None:
        for block in blocks.tolist():
            if not self.right(block):
                raise DataError(
                    f"{self.path}: bytes {block * BLOCK:,} to {(block + 1) * BLOCK:,} are damaged: "
                    "their checksum is wrong",
                    f"outpace pack --verify {self.path.parent} tells which others are; pack them anew",
                )
            self.checked[block] = True
        self.complete = bool(self.checked.all())

    def right(self, block: int) -> bool:
        """Whether a block is as it was written."""
        at = block * BLOCK
        data = self._read(at, min(BLOCK, self.size - at))
        return zlib.crc32(data) == int(self.checksums[block])


def write_checksums(folder: Path, names: list[str]) -> None:
    """Of some files of a folder, into another one there."""
    found: dict[str, Any] = {}
    for name in names:
        sums = []
        with (folder / name).open("rb") as file:
            while block := file.read(BLOCK):
                sums.append(zlib.crc32(block))
        found[name] = np.array(sums, np.uint32)
    np.savez(folder / FILE, **found)


def read_checksums(folder: Path) -> dict[str, Blocks]:
    """By file. Raises DataError where they are missing, or a file is cut off."""
    kept = load_arrays(folder / FILE)
    return {name: Blocks(folder / name, checksums) for name, checksums in kept.items()}


def damaged(files: list[Blocks], progress: Callable[[int, int], None]) -> list[str]:
    """Read all of the files and tell what is not as it was written."""
    total, done, found = sum(len(file.checksums) for file in files), 0, []
    for file in files:
        for block in range(len(file.checksums)):
            if not file.right(block):
                found.append(f"{file.path.name}, bytes from {block * BLOCK:,} on")
            done += 1
            progress(done, total)
    return found
