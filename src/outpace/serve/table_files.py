"""Tables in files, by pyarrow: CSV, JSON lines, Parquet or Arrow, one file or the parts in a folder.

They are read whole, or one record batch after the other. Then the first 32 MiB of a text tell what its
columns are; a text that goes on otherwise can only be read whole.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from outpace.errors import DataError, MissingExtra
from outpace.measure.machine import free_memory
from outpace.serve.listing import names_below
from outpace.serve.meta import Skipped
from outpace.serve.parts import check_parts, told_apart
from outpace.serve.rounding import Rounding

TEXTS = (".csv", ".jsonl")
PARSED = 32 * 2**20
"""bytes of text that are parsed at once, and that a line may have"""
PARALLEL = 2**20
"""the same where a text is read whole: many blocks are parsed at once"""
ROWS = 1 << 16
"""of a Parquet file that are read at once, if they are not more than"""
HELD = 2**28
"""bytes"""
BEYOND = re.compile(r"[+-]?\d{19,}")
"""a whole number that 64 bits may not hold"""
PARQUET = "write the table as Parquet, which tells the types of its columns"

Batches = tuple[Any, Iterator[Any], int | None]
"""schema, record batches one after the other, and rows where they are known"""


class GoesOnOtherwise(DataError):
    """Columns of a text are not what its beginning tells."""


def pyarrow(part: str = "ipc") -> Any:
    """The package, with a part of it: each takes its time to import."""
    try:
        importlib.import_module(f"pyarrow.{part}")
        return importlib.import_module("pyarrow")
    except ImportError as error:
        raise MissingExtra("pyarrow", "serve") from error


@contextlib.contextmanager
def told(path: Path, kind: type[DataError] = DataError) -> Iterator[None]:
    """What pyarrow says of a file, in one line with its path; of columns as ``kind``."""
    try:
        yield
    except (pyarrow().ArrowException, OSError) as error:
        reason = getattr(error, "strerror", None) or str(error).partition("\n")[0]
        if "straddling object" in reason:
            raise DataError(
                f"{path}: a line, or a text in quotes, is longer than {PARSED / 2**20:.0f} MiB",
                "keep what is so large in files of their own, or write the table as Parquet",
            ) from error
        if reason.startswith("CSV parse error"):
            raise DataError(
                f"{path}: {reason}", "outpace pack --on-error skip leaves such rows out"
            ) from error
        fault = kind if isinstance(error, pyarrow().ArrowInvalid) else DataError
        raise fault(f"{path}: {reason}") from error


def parts_of(path: Path) -> list[Path]:
    """A table's one file, or its parts in a folder. Raises DataError where there is no table in it."""
    if not path.is_dir():
        return [path]
    kind, names = told_apart(names_below(str(path)))
    if kind != "table":
        raise DataError(
            f"{path}: there is no table in it", "name a table, or a folder of its parts"
        )
    check_parts(str(path), names)
    return [path / name for name in names]


def mapped(path: Path) -> tuple[Any, list[Any]]:
    """A mapped Arrow file and its record batches: of a file without any an empty one, with its columns."""
    pa = pyarrow()
    with told(path):
        whole = pa.memory_map(str(path)).read_buffer()
        try:
            reader = pa.ipc.open_file(whole)
            batches = [reader.get_batch(i) for i in range(reader.num_record_batches)]
        except pa.ArrowInvalid:
            reader = pa.ipc.open_stream(whole)
            batches = list(reader)
        return whole, batches or [pa.RecordBatch.from_pylist([], schema=reader.schema)]


def in_memory(path: Path, skipped: list[Skipped] | None = None) -> Any:
    """The whole table: a column has a type that suits all of it, JSON lines all keys that come.

    ``skipped``: takes what is left out of a CSV, rows with too few or too many columns.
    """
    files, before = parts_of(path), len(skipped or ())
    tables = _tables(files, skipped, set())
    check_columns(files, [table.schema for table in tables])
    if files[0].suffix.lower() in TEXTS and (texts := _texts_somewhere(tables)):
        if skipped is not None:
            del skipped[before:]
        tables = _tables(files, skipped, texts)
    with told(path):
        return pyarrow().concat_tables(tables, promote_options="permissive")


def _tables(files: Sequence[Path], skipped: list[Skipped] | None, texts: set[str]) -> list[Any]:
    """Those of the parts; ``texts``: columns that are text, whatever they look like."""
    tables = []
    for file in files:
        with told(file):
            tables.append(_whole(file, skipped, texts))
    return tables


def _texts_somewhere(tables: Sequence[Any]) -> set[str]:
    """Columns that are text in some parts, and in others look like something else."""
    pa = pyarrow()
    kinds: dict[str, set[bool]] = {}
    for field in (field for table in tables for field in table.schema):
        kinds.setdefault(field.name, set()).add(pa.types.is_string(field.type))
    return {name for name, found in kinds.items() if found == {True, False}}


def _whole(file: Path, skipped: list[Skipped] | None, texts: set[str]) -> Any:
    suffix = file.suffix.lower()
    if suffix == ".parquet":
        parquet = pyarrow("parquet").parquet
        check_columns([file], [parquet.read_schema(str(file))])
        return parquet.read_table(str(file), partitioning=None)
    if suffix == ".arrow":
        return pyarrow().Table.from_batches(mapped(file)[1])
    before = len(skipped or ())
    try:
        return _parsed(file, PARALLEL, skipped, texts)
    except pyarrow().ArrowInvalid as error:
        if "straddling object" not in str(error):
            raise
        if skipped is not None:
            del skipped[before:]
        return _parsed(file, PARSED, skipped, texts)


def _parsed(file: Path, block: int, skipped: list[Skipped] | None, texts: set[str]) -> Any:
    kinds = pyarrow().schema([(name, pyarrow().string()) for name in sorted(texts)])
    if file.suffix.lower() == ".jsonl":
        lines = pyarrow("json").json
        table = lines.read_json(
            str(file),
            read_options=lines.ReadOptions(block_size=block),
            parse_options=lines.ParseOptions(explicit_schema=kinds if texts else None),
        )
    else:
        csv = pyarrow("csv").csv
        table = csv.read_csv(
            str(file),
            read_options=csv.ReadOptions(block_size=block),
            parse_options=_parsing(file, skipped, quotes=_has_quotes(file)),
            convert_options=csv.ConvertOptions(column_types=kinds),
        )
    _check_whole_numbers(file, table, set())
    return table


def _check_whole_numbers(file: Path, columns: Any, right: set[str]) -> None:
    """Raises DataError where a text has whole numbers beyond 64 bits: pyarrow makes floats of their column.

    ``right``: columns that were looked through; those that are now are put in.
    """
    pa, compute = pyarrow(), pyarrow("compute").compute
    for name, column in zip(columns.schema.names, columns.columns, strict=True):
        if name in right or not pa.types.is_float64(column.type):
            continue
        ends = compute.min_max(column).as_py().values()
        if not any(end is not None and abs(end) >= 2.0**63 for end in ends):
            continue
        right.add(name)
        numbers = _in_csv(file, name) if file.suffix.lower() == ".csv" else _in_lines(file, name)
        for number in numbers:
            if abs(number) >= 2**63:
                raise DataError(
                    f"{file}: {number} of column {name!r} does not fit into 64 bits, and would be rounded",
                    PARQUET,
                )


def _in_csv(file: Path, name: str) -> Iterator[int]:
    """The large whole numbers of a column."""
    csv = pyarrow("csv").csv
    texts = csv.open_csv(
        str(file),
        read_options=csv.ReadOptions(block_size=PARSED),
        parse_options=_parsing(file, [], quotes=True),
        convert_options=csv.ConvertOptions(
            column_types={name: pyarrow().string()}, include_columns=[name]
        ),
    )
    for text in (each for batch in texts for each in batch.column(0).to_pylist()):
        if text is not None and BEYOND.fullmatch(text.strip()):
            yield int(text)


def _in_lines(file: Path, name: str) -> Iterator[int]:
    """The whole numbers under a key of JSON lines."""
    with file.open("rb") as lines:
        for line in filter(None, map(bytes.strip, lines)):
            number = json.loads(line).get(name)
            if type(number) is int:
                yield number


def _has_quotes(file: Path) -> bool:
    with file.open("rb") as text:
        return any(b'"' in block for block in iter(lambda: text.read(PARALLEL), b""))


def _parsing(file: Path, skipped: list[Skipped] | None, *, quotes: bool) -> Any:
    """``quotes``: texts in them may have several lines. Threads wait for each other then, to find where a
    line ends.
    """

    def bad_row(row: Any) -> str:
        if skipped is None:
            return "error"
        reason = f"{row.actual_columns} columns, expected {row.expected_columns}: {row.text}"
        where = f"{file}: row {row.number}" if row.number is not None else str(file)
        skipped.append(Skipped(where, reason))
        return "skip"

    csv = pyarrow("csv").csv
    return csv.ParseOptions(newlines_in_values=quotes, invalid_row_handler=bad_row)


def batches_of(path: Path, skipped: list[Skipped] | None, *, whole: bool = False) -> Batches:
    """A table as record batches. ``skipped`` is as of `in_memory`.

    Raises GoesOnOtherwise, at once or among the batches, where the ``whole`` has to be read into memory.
    """
    files = parts_of(path)
    text = files[0].suffix.lower() in TEXTS
    if whole:
        table = in_memory(path, skipped)
        schema, batches, count = table.schema, iter(table.to_batches(ROWS)), table.num_rows
    else:
        schema, batches, count = _of_text(files, skipped) if text else _of_columns(files)
    check_columns(files[:1], [schema])
    return schema, (batch for batch in batches if batch.num_rows), count


def check_memory(path: Path, error: DataError) -> None:
    """Raises ``error``, with what to do, where a table cannot be read whole."""
    size = sum(file.stat().st_size for file in parts_of(path))
    if 2 * size > free_memory():
        raise DataError(error.message, PARQUET) from error


def _of_text(files: Sequence[Path], skipped: list[Skipped] | None) -> Batches:
    first = _opened(files[0], None, skipped)
    schema = first.schema

    def batches() -> Iterator[Any]:
        for number, file in enumerate(files):
            reader = _opened(file, schema, skipped) if number else first
            check_columns([files[0], file], [schema, reader.schema])
            with told(file, GoesOnOtherwise):
                right = set[str]()
                for batch in reader:
                    _check_whole_numbers(file, batch, right)
                    yield _as(schema, batch)

    return schema, batches(), None


def _opened(file: Path, schema: Any, skipped: list[Skipped] | None) -> Any:
    with told(file, DataError if schema is None else GoesOnOtherwise):
        if file.suffix.lower() == ".jsonl":
            lines = pyarrow("json").json
            others = "infer" if schema is None else "error"
            return lines.open_json(
                str(file),
                read_options=lines.ReadOptions(block_size=PARSED),
                parse_options=lines.ParseOptions(
                    explicit_schema=schema, unexpected_field_behavior=others
                ),
            )
        csv = pyarrow("csv").csv
        return csv.open_csv(
            str(file),
            read_options=csv.ReadOptions(block_size=PARSED),
            parse_options=_parsing(file, skipped, quotes=True),
            convert_options=csv.ConvertOptions(column_types=schema),
        )


def _of_columns(files: Sequence[Path]) -> Batches:
    """Of Parquet and Arrow, which tell their types. Dictionaries, which differ from one batch to the next,
    are written out.
    """
    pa = pyarrow("parquet")
    schemas, count = [], 0
    for file in files:
        with told(file):
            if file.suffix.lower() == ".parquet":
                with pa.parquet.ParquetFile(str(file)) as one:
                    schemas.append(one.schema_arrow)
                    count += one.metadata.num_rows
            else:
                found = mapped(file)[1]
                schemas.append(found[0].schema)
                count += sum(batch.num_rows for batch in found)
    check_columns(files, schemas)
    with told(files[0].parent if len(files) > 1 else files[0]):
        schema = pa.unify_schemas([_plain(one) for one in schemas], promote_options="permissive")

    def batches() -> Iterator[Any]:
        for file in files:
            with told(file):
                for batch in _read(file):
                    yield _as(schema, batch)

    return schema, batches(), count


def _read(file: Path) -> Iterator[Any]:
    if file.suffix.lower() == ".arrow":
        yield from mapped(file)[1]
        return
    with pyarrow("parquet").parquet.ParquetFile(str(file)) as one:
        told = one.metadata
        size = sum(told.row_group(each).total_byte_size for each in range(told.num_row_groups))
        rows = HELD * told.num_rows // max(1, size)
        yield from one.iter_batches(batch_size=max(1, min(ROWS, rows)))


def _plain(schema: Any) -> Any:
    """With the types of what dictionaries hold, and of what views show."""
    pa = pyarrow()
    fields = []
    for field in schema:
        kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
        fields.append(field.with_type(without_views(kind)))
    return pa.schema(fields, schema.metadata)


def without_views(kind: Any) -> Any:
    """A type that rows can be taken of: of views they cannot."""
    pa = pyarrow()
    if pa.types.is_string_view(kind):
        return pa.large_string()
    return pa.large_binary() if pa.types.is_binary_view(kind) else kind


def _as(schema: Any, batch: Any) -> Any:
    if batch.schema.equals(schema):
        return batch
    columns = [batch.column(field.name).cast(field.type) for field in schema]
    return pyarrow().RecordBatch.from_arrays(columns, schema=schema)


def as_float32(found: Batches, rounding: Rounding) -> Batches:
    """Floats of 64 bits as 32, rounded as torch's ``float()`` rounds them; ``rounding`` sees them both."""
    pa = pyarrow()
    schema, batches, count = found
    fields = [
        field.with_type(pa.float32()) if pa.types.is_float64(field.type) else field
        for field in schema
    ]
    narrow = pa.schema(fields, schema.metadata)
    return narrow, (rounding.look(batch, _as(narrow, batch)) for batch in batches), count


def check_columns(files: Sequence[Path], schemas: Sequence[Any]) -> None:
    """Raises DataError where two columns have one name, or parts other columns."""
    for file, schema in zip(files, schemas, strict=False):
        twice = [name for name, count in Counter(schema.names).items() if count > 1]
        if twice:
            raise DataError(
                f"{file}: there are two columns {twice[0]!r}", "give each a name of its own"
            )
        if file.suffix.lower() != ".jsonl" and {*schema.names} != {*schemas[0].names}:
            other = sorted({*schema.names} ^ {*schemas[0].names})
            raise DataError(
                f"{file} and {files[0]} do not have the same columns: {', '.join(map(repr, other))}",
                f"name one of them: {files[0]}",
            )
