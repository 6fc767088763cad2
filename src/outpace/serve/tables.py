"""Tables: CSV, JSON lines, Parquet or Arrow by pyarrow; packed, an Arrow file that stays on the disk.

A column of integers or floats without gaps is gathered from the mapped file by numpy, whatever its
record batches are. Once all of the file was found right, several of one type are copied into memory row by
row where there is ample room (`matrices.py`): by the process that opened the table alone, so that
workers which it forks after that share the copy. Other columns (text, dates, gaps) go through pyarrow
and are slower. What is not packed is read into memory whole.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from outpace.errors import DataError, UsageError
from outpace.serve.blocks import Blocks, damaged, read_checksums, write_checksums
from outpace.serve.matrices import Flat, Matrix, Rows, matrices
from outpace.serve.meta import Meta, is_pack, read_meta
from outpace.serve.strings import position
from outpace.serve.table_files import check_columns, in_memory, mapped, pyarrow, without_views

DATA = "table.arrow"
WHOLE = 2**53
"""up to which a float of 64 bits holds each whole number"""


@final
class Table:
    """Rows of a table: ``source[i]`` is column -> value, ``batch`` is column -> array or list.

    A row's numbers and dates are numpy's, of the type that they have in a batch; anything else is Python's.

    ``path``: a file, a folder of a table's parts, or of a table that is packed.

    ``together``: name -> columns that are given as one under that name, in place of their own. They
    are of one type of numbers and have no gaps; a batch has them as rows x columns, a row as an array.
    ``outpace.Loader(Table("packed", together={"x": ["width", "height"]}), 1024)`` gives
    ``batch["x"]`` of 1,024 x 2 in one gather, where columns of their own would have to be stacked.

    Raises DataError where the file cannot be read or has no rows, UsageError for columns that cannot
    be given together.
    """

    gives_batches = True
    meta: Meta
    """where it is packed"""

    def __init__(
        self, path: str | Path, together: Mapping[str, Sequence[str]] | None = None
    ) -> None:
        self.path = Path(path)
        self.blocks: Blocks | None = None
        self.classes = None
        whole: Any = None
        if is_pack(self.path):
            self.meta = read_meta(self.path)
            if self.meta.kind != "table":
                raise DataError(
                    f"{self.path} is packed as {self.meta.kind}", "outpace.Loader takes it"
                )
            self.blocks = read_checksums(self.path)[DATA]
            whole, batches = mapped(self.path / DATA)
        elif self.path.suffix.lower() == ".arrow" and not self.path.is_dir():
            whole, batches = mapped(self.path)
        else:
            batches = in_memory(self.path).combine_chunks().to_batches()
        batches = [batch for batch in batches if batch.num_rows]
        if not batches:
            raise DataError(f"{self.path}: there are no rows in it")
        check_columns([self.path], [batches[0].schema])
        counts = [batch.num_rows for batch in batches]
        columns: list[str] = batches[0].schema.names
        self.chunks = {n: [_seen(b.column(i)) for b in batches] for i, n in enumerate(columns)}
        self.together = {name: [*of] for name, of in (together or {}).items()}
        self._gaps = {name for name, chunks in self.chunks.items() if _has_gaps(chunks)}
        self._kinds = {name: _kind_of(chunks[0]) for name, chunks in self.chunks.items()}
        self.names = _names(self.path, self.chunks, self.together)
        self.starts: Rows = np.cumsum([0, *counts[:-1]])
        self.length: int = sum(counts)
        self._base = whole.address if whole is not None else 0
        self._flat = {name: _flat(self.chunks[name], self.starts, whole) for name in columns}
        self._matrices: list[Matrix] | None = None
        self._copying = threading.Lock()
        self._wide: dict[str, bool] = {}
        self._opened_by: int | None = os.getpid()
        self._check_gaps()

    def __reduce__(self) -> Any:
        return Table, (self.path, self.together), {"_opened_by": None}

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> dict[str, Any]:
        row = position(index, len(self))
        chunk = int(np.searchsorted(self.starts, row, side="right")) - 1
        for column in self.chunks:
            self._check(column, chunk)
        found = {column: self._value(column, chunk, row) for column in self.chunks}
        for name, columns in self.together.items():
            found[name] = np.array([found[column] for column in columns])
        return {name: found[name] for name in self.names}

    def __getitems__(self, indices: Sequence[int]) -> list[dict[str, Any]]:
        columns = self.batch(indices)
        given = (c.tolist() if _is_truth(c) else c for c in columns.values())
        return [dict(zip(columns, row, strict=True)) for row in zip(*given, strict=True)]

    def _value(self, name: str, chunk: int, row: int) -> Any:
        if (flat := self._flat[name]) is not None:
            elements, shift = flat
            return elements[row + shift[chunk]]
        found = self.chunks[name][chunk][row - int(self.starts[chunk])]
        kind = self._kinds[name]
        if kind is None:
            return found.as_py()
        if kind.kind == "M":
            return np.array(found.value, kind)[()]
        value = found.as_py()
        if kind.kind in "iu" and name in self._gaps:
            if self._is_wide(name):
                return value
            return np.float64(np.nan if value is None else value)
        return kind.type(np.nan if value is None else value)

    def batch(self, indices: Sequence[int] | NDArray[np.integer[Any]]) -> dict[str, Any]:
        """The rows of a batch. Numbers and dates as arrays (NaN, NaT in gaps), anything else as lists; so are
        whole numbers with gaps of which one is too large for a float.

        Each array has memory of its own: who keeps one column of a batch keeps that alone.
        """
        rows = np.asarray(indices, np.int64)
        if rows.size and not -self.length <= int(rows.min()) <= int(rows.max()) < self.length:
            raise IndexError(f"index {rows.min()} or {rows.max()} of {self.length}")
        rows = rows % self.length
        found = dict(itertools.chain.from_iterable(m.batch(rows) for m in self._matrices or ()))
        rest = [name for name in self.names if name not in found]
        if rest:
            chunks = np.searchsorted(self.starts, rows, side="right") - 1
            found |= {name: self._given(name, rows, chunks) for name in rest}
        self._copy()
        return {name: found[name] for name in self.names}

    def _given(self, name: str, rows: Rows, chunks: Rows) -> Any:
        if name not in self.together:
            return self._column(name, rows, chunks)
        return np.stack([self._column(c, rows, chunks) for c in self.together[name]], axis=1)

    def _copy(self) -> None:
        """Have the numbers row by row, from the next batch on."""
        if not self._copying.acquire(blocking=False):
            return  # another thread does
        try:
            if self._matrices is None:
                right = self.blocks is None or self.blocks.finish()
                if right and self._opened_by == os.getpid():
                    self._matrices = matrices(self._flat, self.together, self.starts, self.length)
        except DataError:  # told of with the rows that lie there
            self._matrices = []
        finally:
            self._copying.release()

    def _column(self, name: str, rows: Rows, chunks: Rows) -> Any:
        flat = self._flat[name]
        if flat is None:
            return self._gathered(name, rows, chunks)
        elements, shift = flat
        at = rows + shift[chunks]
        if self.blocks is not None and not self.blocks.complete:
            self.blocks.check(at * elements.itemsize, elements.itemsize)
        return elements.take(at)

    def _gathered(self, name: str, rows: Rows, chunks: Rows) -> Any:
        import pyarrow as pa

        for chunk in np.unique(chunks).tolist():
            self._check(name, chunk)
        column = self._taken(name, rows, chunks)
        kind = self._kinds[name]
        # Not only those of this batch: all batches are of one type.
        gaps = name in self._gaps
        if kind is None:
            plain = pa.types.is_boolean(column.type) and not gaps
            return column.to_numpy() if plain else column.to_pylist()
        found = column.to_numpy()
        if kind.kind in "iu" and gaps:
            if self._is_wide(name):
                return column.to_pylist()
            return found.astype(np.float64, copy=False)
        # Arrow's own memory is not to be written to.
        return found if found.flags.writeable else found.copy()

    def _is_wide(self, name: str) -> bool:
        """Whether there is a whole number in a column that a float cannot hold."""
        import pyarrow.compute as pc

        if name not in self._wide:
            limits = [pc.min_max(chunk).as_py().values() for chunk in self.chunks[name]]
            ends = [abs(end) for limit in limits for end in limit if end is not None]
            self._wide[name] = max(ends, default=0) > WHOLE
        return self._wide[name]

    def _taken(self, name: str, rows: Rows, chunks: Rows) -> Any:
        """Rows of a column, chunk by chunk: of a text pyarrow would first put all chunks together."""
        import pyarrow as pa

        column = self.chunks[name]
        order = np.argsort(chunks, kind="stable")
        used, first = np.unique(chunks[order], return_index=True)
        parts = [
            column[chunk].take(pa.array(rows[own] - self.starts[chunk]))
            for chunk, own in zip(used.tolist(), np.split(order, first[1:]), strict=False)
        ]
        taken = pa.concat_arrays(parts or [column[0][:0]])
        if len(parts) > 1:
            taken = taken.take(pa.array(np.argsort(order)))
        return pa.chunked_array([taken])

    def _check(self, name: str, chunk: int) -> None:
        """See that a stretch of a column is as it was written."""
        if self.blocks is not None and not self.blocks.complete:
            for start, size in _places(self.chunks[name][chunk], self._base):
                self.blocks.check_one(start, size)

    def _check_gaps(self) -> None:
        """What tells where the columns are must be as it was written before they are read."""
        if self.blocks is None:
            return
        columns = itertools.chain.from_iterable(self.chunks.values())
        stretches = sorted(place for column in columns for place in _places(column, self._base))
        end = 0
        for start, size in [*stretches, (self.blocks.size, 0)]:
            if start > end:
                self.blocks.check_one(end, start - end)
            end = max(end, start + size)

    def where(self, index: int) -> str:
        """``data.csv: row 7``, counted from 0."""
        return f"{self.path}: row {index}"

    def damaged(self, progress: Callable[[int, int], None]) -> list[str]:
        """Read all and tell what is not as it was written."""
        return damaged([self.blocks] if self.blocks is not None else [], progress)


def _names(
    path: Path, chunks: Mapping[str, list[Any]], together: Mapping[str, Sequence[str]]
) -> list[str]:
    """What a batch gives: each group in the place of its first column.

    Raises UsageError where columns cannot be given together.
    """
    grouped = [column for columns in together.values() for column in columns]
    for name, columns in together.items():
        if not columns:
            raise UsageError(f"together: {name!r} is of no columns", "name those that it holds")
        if name in chunks and name not in grouped:
            raise UsageError(f"{path} has a column {name!r} already", "choose another name")
        for column in columns:
            if grouped.count(column) > 1:
                raise UsageError(f"together: {column!r} comes twice", "name each column once")
            if column not in chunks:
                there = f"there are: {', '.join(chunks)}"
                raise UsageError(f"{path}: there is no column {column!r}", there)
            if not _is_plain(chunks[column]):
                raise UsageError(
                    f"{path}: {column!r} is not of numbers without gaps: it cannot be in {name!r}",
                    "leave it out of `together`: it then comes under its own name",
                )
        kinds = {column: chunks[column][0].type for column in columns}
        if len({*kinds.values()}) > 1:
            told = ", ".join(f"{column} is {kind}" for column, kind in kinds.items())
            raise UsageError(
                f"{path}: {name!r} is of several types: {told}",
                "give those of each type a name of their own",
            )
    first = {columns[0]: name for name, columns in together.items()}
    given = (first.get(c) or (None if c in grouped else c) for c in chunks)
    return [name for name in given if name is not None]


def _is_plain(chunks: list[Any]) -> bool:
    """Whether a column is of integers or floats and has no gaps."""
    import pyarrow as pa

    kind = chunks[0].type
    plain = pa.types.is_integer(kind) or pa.types.is_floating(kind)
    return plain and not _has_gaps(chunks)


def _has_gaps(chunks: list[Any]) -> bool:
    return any(chunk.null_count for chunk in chunks)


def _kind_of(column: Any) -> np.dtype[Any] | None:
    """What numpy has numbers and dates as, gaps aside; None of anything else."""
    import pyarrow as pa

    known = (pa.types.is_integer, pa.types.is_floating, pa.types.is_timestamp, pa.types.is_date)
    if not any(is_of(column.type) for is_of in known):
        return None
    return np.asarray(pa.chunked_array([column[:0]]).to_numpy()).dtype


def _is_truth(values: Any) -> bool:
    return isinstance(values, np.ndarray) and values.dtype == np.bool_


def _seen(column: Any) -> Any:
    """As it is, but for views, whose rows cannot be taken."""
    kind = without_views(column.type)
    return column if kind == column.type else column.cast(kind)


def _places(column: Any, base: int) -> Iterator[tuple[int, int]]:
    """Where in a mapped file the buffers of a column are."""
    for buffer in column.buffers():
        if buffer is not None and buffer.size:  # an empty one lies anywhere
            yield buffer.address - base, buffer.size


def _flat(chunks: list[Any], starts: Rows, whole: Any) -> Flat | None:
    """All elements that a file could hold, and what is added to a row of each chunk to find its own."""
    if not _is_plain(chunks):
        return None
    dtype = np.dtype(chunks[0].type.to_pandas_dtype())
    if whole is None:
        return (chunks[0].to_numpy(), np.zeros(1, np.int64)) if len(chunks) == 1 else None
    places = [c.buffers()[1].address + c.offset * dtype.itemsize - whole.address for c in chunks]
    if any(p % dtype.itemsize or not 0 <= p < whole.size for p in places):
        return None  # compressed, or packed tightly
    elements = np.frombuffer(whole, dtype, count=whole.size // dtype.itemsize)
    return elements, np.array(places) // dtype.itemsize - starts


def write_table(
    folder: Path, origin: str, schema: Any, batches: Iterator[Any], written: Callable[[int], None]
) -> dict[str, Any]:
    """An Arrow file and its checksums; more for meta.json. ``written`` is told the bytes so far."""
    pa = pyarrow()
    rows = size = 0
    with pa.OSFile(str(folder / DATA), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
        for batch in batches:
            try:
                writer.write_batch(batch)
            except pa.ArrowException as error:
                raise DataError(f"{origin}: {error}") from error
            rows, size = rows + batch.num_rows, size + batch.nbytes
            written(size)
    write_checksums(folder, [DATA])
    return {
        "count": rows,
        "bytes": (folder / DATA).stat().st_size,
        "fields": tuple(schema.names),
    }
