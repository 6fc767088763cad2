"""Columns of numbers copied into memory row by row: a batch is then one gather instead of one a column.

A row of one type lies in a few lines of the processor's cache, that of a table of columns in one a
column. Only what is small beside the free memory is copied.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from outpace.measure.machine import free_memory, local_ranks
from outpace.serve.in_threads import in_threads

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
    whole: str | None = None
    """the name under which they are given together, if they are"""

    def batch(self, rows: Rows) -> Iterator[tuple[str, NDArray[Any]]]:
        """Some rows, together or by column; each array has memory of its own."""
        found = self.numbers.take(rows, axis=0)
        if self.whole is not None:
            yield self.whole, found
        else:
            yield from zip(self.names, (column.copy() for column in found.T), strict=True)


def matrices(
    columns: Mapping[str, Flat | None],
    together: Mapping[str, Sequence[str]],
    starts: Rows,
    length: int,
) -> list[Matrix]:
    """Of the columns that are given together, and of the others of each type where there are several.

    None where they take too much memory.
    """
    given = {name for names in together.values() for name in names}
    alike: dict[Any, list[str]] = {}
    for name, flat in columns.items():
        if flat is not None and name not in given:
            alike.setdefault(flat[0].dtype, []).append(name)
    groups: list[tuple[str | None, list[str]]]
    groups = [
        (whole, [*names])
        for whole, names in together.items()
        if all(columns[name] is not None for name in names)
    ]
    groups += [(None, names) for names in alike.values() if len(names) > 1]
    flats = [[flat for name in names if (flat := columns[name])] for _, names in groups]
    size = length * sum(flat[0].itemsize for part in flats for flat in part)
    if size > SHARE_OF_MEMORY * free_memory() / local_ranks():
        return []
    return [
        Matrix(names, _copied(part, starts, length), whole)
        for (whole, names), part in zip(groups, flats, strict=True)
    ]


def plain_memory(count: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    """So many elements in pages of the usual size.

    numpy asks for huge ones, and a system that has none left makes them first: 0.5 s for 256 MB, seen here.
    """
    return torch.empty(count * dtype.itemsize, dtype=torch.uint8).numpy().view(dtype)


def _copied(columns: Sequence[Flat], starts: Rows, length: int) -> NDArray[Any]:
    found = plain_memory(length * len(columns), columns[0][0].dtype).reshape(length, -1)
    ends = [*starts[1:].tolist(), length]
    blocks = [
        (chunk, first, min(end, first + COPIED))
        for chunk, (start, end) in enumerate(zip(starts.tolist(), ends, strict=True))
        for first in range(start, end, COPIED)
    ]

    def copy(some: Sequence[tuple[int, int, int]]) -> None:
        for chunk, first, last in some:
            for i, (elements, shift) in enumerate(columns):
                found[first:last, i] = elements[first + shift[chunk] : last + shift[chunk]]

    in_threads(copy, blocks)
    return found
