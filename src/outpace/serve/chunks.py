"""Files of records as LitData and MosaicML's MDS write them, read in any order without their packages.

Both begin a file with the number of its records, the offset of each and their end, as uint32; what a
record is made of is told by index.json (`litdata.py`, `mds.py`). Encoded images stay encoded. Honest
limits: files that are compressed or encrypted, and values that only running code gives back, are refused.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from outpace.errors import DataError
from outpace.serve.reading import ReadAt
from outpace.serve.strings import position

INDEX = "index.json"
WORD = np.dtype("<u4")
MOST_OPEN = 256


@final
class Chunks:
    """The samples of a folder's chunk files.

    ``files``: names and records of each, in order; ``decode``: record -> sample, in which ``images`` are
    the fields of encoded images. Raises DataError for a file that is not as its index says.
    """

    def __init__(
        self,
        folder: Path,
        files: Sequence[tuple[str, int]],
        decode: Callable[[memoryview], Any],
        images: Sequence[str],
    ) -> None:
        self.folder, self.decode, self.images = folder, decode, tuple(images)
        self.classes = None
        self.counts = [count for _, count in files]
        self.ends = list(accumulate(self.counts))
        self.chunks = [ReadAt(folder / name, len(files) <= MOST_OPEN) for name, _ in files]
        self._offsets: dict[int, NDArray[np.uint32]] = {}

    @property
    def files(self) -> list[Path]:
        """All that the samples are made from."""
        return [self.folder / INDEX, *(Path(chunk.path) for chunk in self.chunks)]

    def __len__(self) -> int:
        return self.ends[-1] if self.ends else 0

    def __getitem__(self, index: int) -> Any:
        chunk, row = self._place(index)
        start, end = self._offsets_of(chunk)[row : row + 2].tolist()
        try:
            return self.decode(self.chunks[chunk](start, end - start))
        except (ValueError, LookupError, TypeError, RuntimeError, struct.error) as error:
            raise DataError(f"{self.where(index)}: not what its index says: {error}") from error

    def _place(self, index: int) -> tuple[int, int]:
        at = position(index, len(self))
        chunk = bisect_right(self.ends, at)
        return chunk, at - self.ends[chunk] + self.counts[chunk]

    def _offsets_of(self, chunk: int) -> NDArray[np.uint32]:
        """Of a file's records and their end, read once."""
        found = self._offsets.get(chunk)
        if found is None:
            count, read = self.counts[chunk], self.chunks[chunk]
            head = np.frombuffer(read(0, WORD.itemsize * (count + 2)), WORD)
            if int(head[0]) != count:
                raise DataError(f"{read.path}: {head[0]:,} records, {count:,} by its index")
            found = self._offsets[chunk] = head[1:]
        return found

    def where(self, index: int) -> str:
        """``data/shard.00003.mds: record 7``."""
        chunk, row = self._place(index)
        return f"{self.chunks[chunk].path}: record {row}"


def values(data: memoryview, sizes: Sequence[int | None]) -> list[memoryview]:
    """The values of a record: first the sizes that are not fixed, as uint32, then one after the other."""
    told = sizes.count(None)
    own = iter(np.frombuffer(data[: told * WORD.itemsize], WORD).tolist())
    if len(data) < told * WORD.itemsize:
        raise ValueError(f"{len(data):,} bytes, too few for {told} sizes")
    at, found = told * WORD.itemsize, []
    for size in sizes:
        end = at + (next(own) if size is None else size)
        found.append(data[at:end])
        at = end
    if at != len(data):
        raise ValueError(f"{len(data):,} bytes where its values take {at:,}")
    return found


def array(data: memoryview, dtype: np.dtype[Any], shape: Sequence[int] | None = None) -> Any:
    """Numbers in memory of their own, as they may lie askew in a record."""
    flat = np.frombuffer(bytearray(data), dtype)
    return flat if shape is None else flat.reshape(shape)


def text(data: memoryview) -> str:
    """UTF-8."""
    return str(data, "utf-8")


def integer(data: memoryview) -> int:
    """Little-endian, signed, of any length."""
    return int.from_bytes(data, "little", signed=True)


def refused(folder: Path, what: str) -> DataError:
    """What is told of a folder that is not read here."""
    return DataError(
        f"{folder}: {what}", "give outpace the data set that its own package opens, as module:name"
    )
