"""Columns of numbers copied into memory row by row: a batch is then one gather instead of one a column.

A row of one type lies in a few lines of the processor's cache, that of a table of columns in one a
column. Only what is small beside the free memory is copied.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import psutil
from numpy.typing import NDArray

from outpace.measure.machine import memory_limit

SHARE_OF_MEMORY = 1 / 8
"""of free memory that the copy may take"""
COPIED = 1 << 12
"""rows that are copied at once: so many stay in the processor's cache"""
Rows = NDArray[np.int64]
Flat = tuple[NDArray[Any], Rows]
"""all elements that a file could hold, and what is added to a row of each chunk to find its own"""


class Matrix(NamedTuple):
    """Columns of one type."""

    names: Sequence[str]
    numbers: NDArray[Any]
    """rows x columns"""

    def batch(self, rows: Rows) -> Iterator[tuple[str, NDArray[Any]]]:
        """Each column of some rows."""
        return zip(self.names, self.numbers.take(rows, axis=0).T.copy(), strict=True)


def matrices(columns: Mapping[str, Flat | None], starts: Rows, length: int) -> list[Matrix]:
    """Of each type that several columns have; none where they take too much memory."""
    kinds: dict[Any, dict[str, Flat]] = {}
    for name, flat in columns.items():
        if flat is not None:
            kinds.setdefault(flat[0].dtype, {})[name] = flat
    kinds = {kind: alike for kind, alike in kinds.items() if len(alike) > 1}
    size = length * sum(kind.itemsize * len(alike) for kind, alike in kinds.items())
    if size > SHARE_OF_MEMORY * min(psutil.virtual_memory().available, memory_limit()):
        return []
    return [
        Matrix([*alike], _copied([*alike.values()], starts, length)) for alike in kinds.values()
    ]


def _copied(columns: Sequence[Flat], starts: Rows, length: int) -> NDArray[Any]:
    found = np.empty((length, len(columns)), columns[0][0].dtype)
    ends = [*starts[1:].tolist(), length]
    for chunk, (start, end) in enumerate(zip(starts.tolist(), ends, strict=True)):
        for first in range(start, end, COPIED):
            last = min(end, first + COPIED)
            for i, (elements, shift) in enumerate(columns):
                found[first:last, i] = elements[first + shift[chunk] : last + shift[chunk]]
    return found
