"""Arrays: samples of one fixed shape, a mapped `.npy` file for each of their leaves.

A batch is gathered from the files in one go. Any program that reads `.npy` can read them.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from outpace.errors import DataError
from outpace.serve.blocks import damaged, read_checksums, write_checksums
from outpace.serve.meta import load_array, read_meta
from outpace.serve.rows import Row, Uneven, join, leaves, many, one, split
from outpace.serve.strings import position

MOST_FILES = 64
"""that a store is to have, one of each number and array of a sample: all are open at once"""


@final
class Arrays:
    """The samples of a folder that `outpace pack` wrote, each as its source gave it."""

    gives_batches = True

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.meta = read_meta(self.folder)
        self.classes = self.meta.classes
        self.structure = self.meta.structure
        names = [leaf["leaf"] for leaf in leaves(self.structure)]
        files = read_checksums(self.folder)
        self.arrays = {name: load_array(self.folder / f"{name}.npy") for name in names}
        for leaf in leaves(self.structure):
            array, shape = self.arrays[leaf["leaf"]], (self.meta.count, *leaf["shape"])
            alike = array.dtype.str == leaf["dtype"] and array.shape == shape
            if not (alike and array.flags.c_contiguous):
                raise DataError(
                    f"{self.folder / leaf['leaf']}.npy: its head is not as it was written",
                    "copy or pack it anew",
                )
        self.blocks = {name: files[f"{name}.npy"] for name in names}
        self._places = {
            name: (self.blocks[name].size - array.nbytes, array.nbytes // max(1, len(array)))
            for name, array in self.arrays.items()
        }
        """bytes before the first row of a file, and of each"""

    def __reduce__(self) -> Any:
        return Arrays, (self.folder,)

    def __len__(self) -> int:
        return self.meta.count

    def __getitem__(self, index: int) -> Any:
        at = position(index, len(self))
        return join(self.structure, lambda leaf: one(leaf, self._row(leaf["leaf"], at)))

    def batch(self, indices: Sequence[int] | NDArray[np.integer[Any]]) -> Any:
        """The samples of a batch, stacked: a nest like theirs, of arrays and tensors."""
        rows = np.asarray(indices, np.int64)
        return join(self.structure, lambda leaf: many(leaf, self._rows(leaf["leaf"], rows)))

    def _row(self, name: str, index: int) -> Row:
        """As it lies in the file."""
        array, blocks = self.arrays[name], self.blocks[name]
        if not blocks.complete:
            head, size = self._places[name]
            blocks.check_one(head + index * size, size)
        return array[index]  # type: ignore[no-any-return]

    def _rows(self, name: str, rows: NDArray[np.int64]) -> Row:
        array, blocks = self.arrays[name], self.blocks[name]
        if not blocks.complete:
            head, size = self._places[name]
            blocks.check(head + (rows % len(self)) * size, size)
        return array.take(rows, axis=0)

    def where(self, index: int) -> str:
        """``packed: sample 7``."""
        return f"{self.folder}: sample {index}"

    def damaged(self, progress: Callable[[int, int], None]) -> list[str]:
        """Read all and tell what is not as it was written."""
        return damaged(list(self.blocks.values()), progress)


@final
class Rows:
    """Makes samples rows: all must be like ``usual``."""

    def __init__(self, usual: Any) -> None:
        self.structure, rows = split(usual)
        self.wanted = list(leaves(self.structure))
        if len(self.wanted) > MOST_FILES:
            raise Uneven(f"has {len(self.wanted)} numbers and arrays, each a file of its own", HINT)
        self.bytes = sum(row.nbytes for row in rows)

    def __call__(self, sample: Any) -> list[bytes]:
        """The bytes of its leaves. Raises Uneven where it is not like the usual one."""
        try:
            structure, rows = split(sample)
        except DataError as error:
            raise Uneven(error.message, HINT) from error
        if structure != self.structure:
            for one_of, other in zip(self.wanted, leaves(structure), strict=False):
                if one_of != other:
                    raise Uneven(f"{told(other)}, where others have {told(one_of)}", HINT)
            raise Uneven("has other parts than other samples", HINT)
        return [row.tobytes() for row in rows]


HINT = "pack as records, which take samples of any shape: --as records"


def told(leaf: Any) -> str:
    """``image: array of uint8, 3 x 224 x 224``."""
    shape = " x ".join(map(str, leaf["shape"])) or "one number"
    return f"{leaf['leaf']}: {leaf['as']} of {np.dtype(leaf['dtype'])}, {shape}"


@final
class ArraysWriter:
    """Appends rows to each leaf's file; ``kept`` of those that are there already are taken over."""

    def __init__(self, folder: Path, kept: int, rows: Rows, most: int) -> None:
        self.folder = folder
        self.structure = rows.structure
        self.leaves = rows.wanted
        self.count = kept
        self.sizes: list[int] = [
            np.dtype(leaf["dtype"]).itemsize * math.prod(leaf["shape"]) for leaf in self.leaves
        ]
        self.files: list[Any] = []
        for leaf, size in zip(self.leaves, self.sizes, strict=True):
            path = folder / f"{leaf['leaf']}.npy"
            file = path.open("r+b" if path.exists() else "w+b")
            self.files.append(file)
            _head(file, leaf, most)
            file.truncate(file.tell() + kept * size)
            file.seek(0, os.SEEK_END)

    def append(self, rows: list[bytes]) -> None:
        """One sample."""
        for file, row in zip(self.files, rows, strict=True):
            file.write(row)
        self.count += 1

    def sync(self) -> None:
        """Have all of it on the disk."""
        for file in self.files:
            file.flush()
            os.fsync(file.fileno())

    def close(self) -> None:
        """Leave the files as they are."""
        for file in self.files:
            with contextlib.suppress(OSError):
                file.close()

    def finish(self) -> dict[str, Any]:
        """Tell the files how many rows they have, and write checksums; more for meta.json."""
        for file, leaf, size in zip(self.files, self.leaves, self.sizes, strict=True):
            end = file.tell()
            file.seek(0)
            _head(file, leaf, self.count)
            if file.tell() + self.count * size != end:
                raise DataError(f"{file.name}: its head has another length than at the start")
            file.seek(0, os.SEEK_END)
        self.sync()
        write_checksums(self.folder, [f"{leaf['leaf']}.npy" for leaf in self.leaves])
        return {"bytes": self.count * sum(self.sizes), "structure": self.structure}


def _head(file: Any, leaf: Any, count: int) -> None:
    """The head of a `.npy` file: numpy leaves room in it for any number of rows."""
    shape = (count, *leaf["shape"])
    content = {"descr": leaf["dtype"], "fortran_order": False, "shape": shape}
    npy.write_array_header_1_0(file, content)
