"""Records: one file of encoded samples behind one another, an index of offsets, a checksum each.

Damage is found when a record is first read in a process, or by `outpace pack --verify`.
"""

from __future__ import annotations

import contextlib
import os
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, final

import msgspec
import numpy as np

from outpace.errors import DataError
from outpace.serve import samples
from outpace.serve.flags import shared_flags
from outpace.serve.meta import load_array, read_meta
from outpace.serve.reading import ReadAt
from outpace.serve.strings import position

DATA = "records.bin"
INDEX = "index.part"
ENTRY = np.dtype([("size", "<u8"), ("checksum", "<u4")])
"""of the index while it is written: one a record"""


@final
class Records:
    """The samples of a folder that `outpace pack` wrote, each as its source gave it."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.meta = read_meta(self.folder)
        self.classes = self.meta.classes
        self.path = self.folder / DATA
        self.offsets = load_array(self.folder / "offsets.npy")
        self.checksums = load_array(self.folder / "checksums.npy")
        self._read = ReadAt(self.path)
        size = self.path.stat().st_size if self.path.exists() else 0
        for array, length in (
            (self.checksums, self.meta.count),
            (self.offsets, self.meta.count + 1),
        ):
            if array.shape != (length,) or array.dtype.kind != "u":
                raise DataError(f"{self.folder}: its index is damaged", "copy or pack it anew")
        if size != int(self.offsets[-1]):
            raise DataError(
                f"{self.path}: {size:,} bytes, and not the {int(self.offsets[-1]):,} that were written",
                "copy or pack it anew",
            )
        self._read(0, 0)  # opened: what its index is of is read from here on
        self.checked = shared_flags(len(self))

    def __reduce__(self) -> Any:
        return Records, (self.folder,)

    def __len__(self) -> int:
        return len(self.checksums)

    def __getitem__(self, index: int) -> Any:
        return samples.decode(self.raw(position(index, len(self))))

    def raw(self, index: int) -> memoryview:
        """A record's bytes, read anew. Raises DataError where they are not those that were written."""
        start, end = int(self.offsets[index]), int(self.offsets[index + 1])
        if not start <= end <= int(self.offsets[-1]):
            raise DataError(
                f"{self.folder}: the place of record {index} is damaged", "pack it anew"
            )
        data = self._read(start, end - start)
        if not self.checked[index]:
            if zlib.crc32(data) != self.checksums[index]:
                raise DataError(
                    f"{self.path}: record {index} is damaged: its checksum is wrong",
                    f"outpace pack --verify {self.folder} tells which others are; pack them anew",
                )
            self.checked[index] = True
        return data

    def where(self, index: int) -> str:
        """``packed/records.bin: record 7 (cat/0007)``."""
        key = ""
        with contextlib.suppress(DataError, msgspec.DecodeError, KeyError, TypeError):
            key = f" ({self[index]['__key__']})"
        return f"{self.path}: record {index}{key}"

    def damaged(self, progress: Callable[[int, int], None]) -> list[str]:
        """Read all and tell what is not as it was written."""
        found = []
        self.checked[:] = False
        for index in range(len(self)):
            try:
                self.raw(index)
            except DataError:
                found.append(f"record {index}")
            progress(index + 1, len(self))
        return found


@final
class RecordsWriter:
    """Appends records; ``kept`` of those that are there already are taken over."""

    def __init__(self, folder: Path, kept: int) -> None:
        self.folder = folder
        entries = np.zeros(0, ENTRY)
        if kept:
            entries = np.fromfile(folder / INDEX, ENTRY, count=kept)
        self.count, self.bytes = kept, int(entries["size"].sum())
        self.data = _at_end(folder / DATA, self.bytes)
        self.index = _at_end(folder / INDEX, kept * ENTRY.itemsize)

    def append(self, record: bytes) -> None:
        """One record."""
        self.data.write(record)
        self.index.write(struct.pack("<QI", len(record), zlib.crc32(record)))
        self.count += 1
        self.bytes += len(record)

    def sync(self) -> None:
        """Have all of it on the disk."""
        for file in (self.data, self.index):
            file.flush()
            os.fsync(file.fileno())

    def close(self) -> None:
        """Leave the files as they are."""
        for file in (self.data, self.index):
            with contextlib.suppress(OSError):
                file.close()

    def finish(self) -> dict[str, Any]:
        """Write the index; the size, for meta.json."""
        self.sync()
        entries = np.fromfile(self.folder / INDEX, ENTRY, count=self.count)
        offsets = np.zeros(self.count + 1, np.uint64)
        np.cumsum(entries["size"], out=offsets[1:])
        np.save(self.folder / "offsets.npy", offsets)
        np.save(self.folder / "checksums.npy", entries["checksum"])
        return {"bytes": self.bytes}


def _at_end(path: Path, size: int) -> Any:
    """A file opened for writing after its first ``size`` bytes."""
    file = path.open("r+b" if path.exists() else "w+b", buffering=1 << 20)
    file.truncate(size)
    file.seek(size)
    return file
