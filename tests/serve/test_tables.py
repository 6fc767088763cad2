from __future__ import annotations

import contextlib
import datetime
import json
import pickle
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import default_collate

from outpace.errors import DataError, UsageError
from outpace.serve import matrices, table_files
from outpace.serve.batches import same_bits
from outpace.serve.blocks import Blocks
from outpace.serve.loader import Loader
from outpace.serve.pack import pack
from outpace.serve.sources import open_source
from outpace.serve.tables import Table
from outpace.serve.verify import verify
from tests.serve.test_records import flip

pa = pytest.importorskip("pyarrow")

ROWS = 1000


def columns() -> dict[str, Any]:
    return {
        "id": list(range(ROWS)),
        "x": [i / 8 for i in range(ROWS)],
        "name": [f"row {i}" for i in range(ROWS)],
        "gap": [None if i % 10 == 0 else i for i in range(ROWS)],
        "yes": [i % 3 == 0 for i in range(ROWS)],
        "day": [datetime.date(2026, 1, 1) + datetime.timedelta(days=i) for i in range(ROWS)],
    }


def as_csv(path: Path, table: Any) -> None:
    import pyarrow.csv

    pyarrow.csv.write_csv(table, path)


def as_lines(path: Path, table: Any) -> None:
    path.write_text("".join(json.dumps(row, default=str) + "\n" for row in table.to_pylist()))


def as_parquet(path: Path, table: Any) -> None:
    import pyarrow.parquet

    pyarrow.parquet.write_table(table, path, row_group_size=300)


def as_arrow(path: Path, table: Any) -> None:
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=130)


def as_stream(path: Path, table: Any) -> None:
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with (
        pa.OSFile(str(path), "wb") as sink,
        pa.ipc.new_stream(sink, table.schema, options=options) as writer,
    ):
        writer.write_table(table)


KINDS: dict[str, tuple[str, Callable[[Path, Any], None]]] = {
    "csv": ("t.csv", as_csv),
    "jsonl": ("t.jsonl", as_lines),
    "parquet": ("t.parquet", as_parquet),
    "arrow": ("t.arrow", as_arrow),
    "stream": ("s.arrow", as_stream),
}


@pytest.fixture(params=[(kind, how) for kind in KINDS for how in ("as it is", "packed")], ids=str)
def table(request: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Table:
    kind, how = request.param
    monkeypatch.setattr(table_files, "PARSED", 8192)
    monkeypatch.setattr(table_files, "ROWS", 150)
    name, write = KINDS[kind]
    write(tmp_path / name, pa.table(columns()))
    if how == "as it is":
        return Table(tmp_path / name)
    meta = pack(tmp_path / name, tmp_path / "packed")
    assert (meta.kind, meta.count, meta.fields) == ("table", ROWS, tuple(columns()))
    return Table(tmp_path / "packed")


def test_rows_and_batches(table: Table) -> None:
    wanted = columns()
    assert len(table) == ROWS
    row = table[730]
    assert {name: row[name] for name in ("id", "x", "name", "gap", "yes")} == {
        "id": 730, "x": 91.25, "name": "row 730", "gap": row["gap"], "yes": False,
    }  # fmt: skip
    assert np.isnan(row["gap"])
    assert table[-1]["id"] == ROWS - 1
    rows = np.array([999, 0, 500, 500, 301])
    batch = table.batch(rows)
    assert batch["id"].dtype == np.int64
    assert batch["id"].tolist() == rows.tolist()
    assert batch["x"].tolist() == [wanted["x"][i] for i in rows]
    assert batch["name"] == [wanted["name"][i] for i in rows]
    np.testing.assert_array_equal(batch["gap"], [999, np.nan, np.nan, np.nan, 301])
    assert batch["yes"].tolist() == [i % 3 == 0 for i in rows]
    again = pickle.loads(pickle.dumps(table))
    assert again.batch(rows)["id"].tolist() == rows.tolist()
    with pytest.raises(IndexError):
        table[ROWS]
    with pytest.raises(IndexError):
        table.batch([ROWS])


def test_a_column_with_gaps_is_of_one_type_in_all_batches(tmp_path: Path) -> None:
    some = {"n": [None, *range(1, 40)], "yes": [None, *[True] * 39], "small": [None, *[7] * 39]}
    as_parquet(tmp_path / "t.parquet", pa.table(some, schema=pa.schema(
        {"n": pa.int64(), "yes": pa.bool_(), "small": pa.int8()}
    )))  # fmt: skip
    table = Table(tmp_path / "t.parquet")
    for rows in (range(10), range(10, 20)):
        batch = table.batch(np.array(rows))
        assert {name: batch[name].dtype.name for name in ("n", "small")} == {
            "n": "float64",
            "small": "float64",
        }
        assert batch["yes"] == [some["yes"][row] for row in rows]


def packed(tmp_path: Path) -> Path:
    as_parquet(tmp_path / "t.parquet", pa.table({"x": np.arange(100_000.0), "n": ["a"] * 100_000}))
    pack(tmp_path / "t.parquet", tmp_path / "packed")
    return tmp_path / "packed"


def numbers(count: int = 5000) -> dict[str, Any]:
    kinds = {"a": np.float32, "b": np.int64, "c": np.float32, "d": np.int64, "e": np.int8}
    return {name: np.arange(count).astype(kind) for name, kind in kinds.items()} | {
        "gap": [None, *range(1, count)]
    }


@pytest.mark.parametrize("name", KINDS)
def test_numbers_are_gathered_by_rows(tmp_path: Path, name: str) -> None:
    wanted = numbers()
    file, write = KINDS[name]
    write(tmp_path / file, pa.table(wanted))
    pack(tmp_path / file, tmp_path / "packed")
    table = Table(tmp_path / "packed")
    for rows in (np.arange(5000), np.array([4999, 0, -1, 130, 129])):
        batch = table.batch(rows)
        assert list(batch) == list(wanted)
        for column in "abcde":
            assert batch[column].tolist() == wanted[column][rows].tolist()
            assert batch[column].flags.c_contiguous
    assert table._matrices
    alike = {name for matrix in table._matrices for name in matrix.names}
    assert alike >= {"a", "b", "c", "d"}
    assert "gap" not in alike
    assert table.batch([])["a"].shape == (0,)


def test_numbers_are_copied_once_all_is_found_right(tmp_path: Path) -> None:
    as_parquet(tmp_path / "t.parquet", pa.table(numbers(100_000)))
    pack(tmp_path / "t.parquet", tmp_path / "packed")
    table = Table(tmp_path / "packed")
    assert table.batch([5])["a"].tolist() == [5]
    assert table._matrices is None
    table.batch(np.arange(100_000))
    assert table._matrices
    sent = pickle.loads(pickle.dumps(table))
    assert sent.batch(np.arange(100_000))["d"].tolist() == list(range(100_000))
    assert sent._matrices is None  # each worker would have its own


def test_numbers_are_copied_by_one_thread_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    as_parquet(tmp_path / "t.parquet", pa.table(numbers(100_000)))
    pack(tmp_path / "t.parquet", tmp_path / "packed")
    table, finish, copy, copied = Table(tmp_path / "packed"), Blocks.finish, matrices.matrices, []

    def slow(blocks: Blocks) -> bool:
        time.sleep(0.2)
        return finish(blocks)

    def noted(*given: Any) -> Any:
        copied.append(threading.get_ident())
        return copy(*given)

    monkeypatch.setattr(Blocks, "finish", slow)
    monkeypatch.setattr("outpace.serve.tables.matrices", noted)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(table.batch, [np.arange(100_000)] * 4))
    assert len(copied) == 1
    assert table._matrices
    assert all(batch["d"].tolist() == list(range(100_000)) for batch in found)


def test_what_takes_too_much_memory_is_left_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matrices, "SHARE_OF_MEMORY", 0)
    as_parquet(tmp_path / "t.parquet", pa.table(numbers()))
    table = Table(tmp_path / "t.parquet")
    for _ in range(2):
        assert table.batch([7, 8])["a"].tolist() == [7, 8]
    assert table._matrices == []


def test_a_flipped_byte_is_found_when_it_is_read(tmp_path: Path) -> None:
    folder = packed(tmp_path)
    place = (folder / "table.arrow").read_bytes().index(np.float64(50_000).tobytes())
    flip(folder / "table.arrow", place)
    table = Table(folder)
    assert table.batch([0])["x"].tolist() == [0]
    with pytest.raises(DataError, match=r"table\.arrow: bytes .* damaged"):
        table.batch([1, 50_000])
    assert len(table.damaged(lambda done, total: None)) == 1


def test_what_tells_where_columns_are_is_checked_first(tmp_path: Path) -> None:
    folder = packed(tmp_path)
    data = bytearray((folder / "table.arrow").read_bytes())
    data[-60] ^= 1  # in the footer
    (folder / "table.arrow").write_bytes(data)
    with pytest.raises(DataError, match=r"table\.arrow"):
        Table(folder)


def test_what_is_no_table(tmp_path: Path) -> None:
    path = tmp_path / "bad.csv"
    path.write_text("a,b\n1,2\n1,2,3\n4,5\n")
    with pytest.raises(DataError, match=r"bad\.csv: .*3"):
        Table(path)
    with pytest.raises(DataError, match=r"bad\.csv"):
        pack(path, tmp_path / "packed")
    assert not (tmp_path / "packed").exists()
    meta = pack(path, tmp_path / "packed", skip=True)
    assert meta.count == 2
    assert [one.reason for one in meta.skipped] == ["3 columns, expected 2: 1,2,3"]
    for name in ("bad.parquet", "bad.arrow", "bad.jsonl"):
        (tmp_path / name).write_bytes(b"{this is none")
        with pytest.raises(DataError, match=name):
            Table(tmp_path / name)
    (tmp_path / "empty.csv").write_text("a,b\n")
    with pytest.raises(DataError, match="no rows"):
        pack(tmp_path / "empty.csv", tmp_path / "none")


def test_columns_as_arrays(tmp_path: Path) -> None:
    as_csv(tmp_path / "t.csv", pa.table({"a": range(50), "b": [1.5] * 50}))
    meta = pack(tmp_path / "t.csv", tmp_path / "packed", "arrays")
    assert (meta.kind, meta.count, meta.fields) == ("arrays", 50, ("a", "b"))
    found: Any = open_source(tmp_path / "packed")
    assert found[7] == {"a": 7, "b": 1.5}
    assert found.batch([3, 4])["a"].tolist() == [3, 4]
    assert verify(tmp_path / "packed", lambda phase, done, total: None).source == "same"


def test_a_batch_takes_from_the_chunks_of_its_rows_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Put together, the chunks of a text would all be copied for each batch."""
    wanted = {"name": [f"row {i}" for i in range(ROWS)], "gap": columns()["gap"]}
    as_arrow(tmp_path / "t.arrow", pa.table(wanted))
    table, real = Table(tmp_path / "t.arrow"), pa.chunked_array
    taken: list[int] = []

    def counting(parts: Any) -> Any:
        taken.append(sum(len(part) for part in parts))
        return real(parts)

    monkeypatch.setattr(pa, "chunked_array", counting)
    rows = np.array([999, 0, 131, 129, 500, 0])
    batch = table.batch(rows)
    assert batch["name"] == [wanted["name"][i] for i in rows]
    np.testing.assert_array_equal(batch["gap"], [999, np.nan, 131, 129, np.nan, np.nan])
    assert table.batch(np.array([], np.int64))["name"] == []
    assert taken == [6, 6, 0, 0]


TOGETHER = {"x": ["c", "a"], "n": ["b", "d"]}


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("as_it_is", [True, False])
def test_columns_that_are_given_together(tmp_path: Path, name: str, as_it_is: bool) -> None:
    wanted = {"y": range(5000), **numbers()}
    wanted["c"] = wanted["c"] + np.float32(0.25)
    wanted["a"] = wanted["c"] / 2
    file, write = KINDS[name]
    write(tmp_path / file, pa.table(wanted))
    if not as_it_is:
        pack(tmp_path / file, tmp_path / "packed")
    table = Table(tmp_path / (file if as_it_is else "packed"), TOGETHER)
    rows = np.array([4999, 0, -1, 130, 129])
    for _ in range(2):  # from the columns, then from their copy
        batch = table.batch(rows)
        assert list(batch) == ["y", "n", "x", "e", "gap"]
        assert batch["x"].tolist() == [[c, c / 2] for c in wanted["c"][rows].tolist()]
        assert batch["n"].tolist() == [[b, b] for b in wanted["b"][rows].tolist()]
        assert batch["y"].tolist() == (rows % 5000).tolist()
        assert batch["x"].flags.c_contiguous
        table.batch(np.arange(5000))
    assert table._matrices or (name, as_it_is) == ("stream", True)  # compressed
    row = table[130]
    assert list(row) == list(batch)
    assert row["x"].tolist() == [130.25, 65.125]
    assert row["x"].dtype == batch["x"].dtype
    assert pickle.loads(pickle.dumps(table)).batch([7])["x"].tolist() == [[7.25, 3.625]]
    assert table.batch([])["x"].shape == (0, 2)


@pytest.mark.parametrize(
    ("together", "match"),
    [
        ({"x": []}, "of no columns"),
        ({"x": ["a", "z"]}, "no column 'z'"),
        ({"x": ["a", "b"]}, "several types: a is float, b is int64"),
        ({"x": ["a", "gap"]}, "'gap' is not of numbers without gaps"),
        ({"x": ["a"], "y": ["a"]}, "'a' comes twice"),
        ({"b": ["a", "c"]}, "has a column 'b' already"),
    ],
)
def test_columns_that_cannot_be_given_together(
    tmp_path: Path, together: dict[str, list[str]], match: str
) -> None:
    as_parquet(tmp_path / "t.parquet", pa.table(numbers()))
    with pytest.raises(UsageError, match=match):
        Table(tmp_path / "t.parquet", together)


def test_a_group_may_have_the_name_of_one_of_its_columns(tmp_path: Path) -> None:
    as_parquet(tmp_path / "t.parquet", pa.table(numbers()))
    batch = Table(tmp_path / "t.parquet", {"c": ["a", "c"]}).batch([3, 4])
    assert list(batch) == ["c", "b", "d", "e", "gap"]
    assert batch["c"].tolist() == [[3, 3], [4, 4]]


def test_rows_beside_a_damaged_block_are_given(tmp_path: Path) -> None:
    """Most blocks being right, the last few are looked at, whoever asked for other rows."""
    count = 60_000
    as_parquet(tmp_path / "t.parquet", pa.table({n: np.arange(float(count)) for n in "ab"}))
    pack(tmp_path / "t.parquet", tmp_path / "packed")
    flip(tmp_path / "packed/table.arrow", 300_000)
    loader = Loader(tmp_path / "packed", 1000, workers=0, on_error="skip")
    seen = np.concatenate([batch["a"].numpy() for batch in loader])
    skipped = [one.sample for one in loader.skipped]
    assert 0 < len(skipped) <= 8192, "rows of 64 KiB"
    assert sorted([*seen.astype(int).tolist(), *skipped]) == list(range(count))


def test_what_a_batch_gives_may_be_written_to(tmp_path: Path) -> None:
    gaps = pa.array([None, *np.arange(99.0)])
    days = pa.array(np.arange(100), pa.timestamp("s"))
    as_parquet(tmp_path / "t.parquet", pa.table({"gap": gaps, "day": days}))
    batch = Table(tmp_path / "t.parquet").batch(np.arange(1, 20))
    assert all(batch[name].flags.writeable for name in ("gap", "day"))


class Samples:
    """No table."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Any:
        return {"x": np.array([index, 0.5], np.float32), "z": np.array([index * 1j], np.complex64)}


def test_complex_numbers_come_out_as_tensors_too(tmp_path: Path) -> None:
    pack("tests.serve.test_tables:Samples", tmp_path / "packed", "arrays")
    batch = next(iter(Loader(tmp_path / "packed", 4, workers=0)))
    assert [type(part).__name__ for part in batch.values()] == ["Tensor", "Tensor"]


def test_a_pack_of_another_kind_is_no_table(tmp_path: Path) -> None:
    pack("tests.serve.test_tables:Samples", tmp_path / "packed", "arrays")
    with pytest.raises(DataError, match="packed as arrays"):
        Table(tmp_path / "packed")


@pytest.mark.parametrize("kind", [pa.ipc.new_file, pa.ipc.new_stream])
def test_a_part_without_rows_is_one_all_the_same(tmp_path: Path, kind: Any) -> None:
    (tmp_path / "parts").mkdir()
    schema = pa.schema([("a", pa.int64())])
    for part, rows in enumerate(([1, 2], [])):
        with (
            pa.OSFile(str(tmp_path / f"parts/{part}.arrow"), "wb") as sink,
            kind(sink, schema) as writer,
        ):
            if rows:
                writer.write_table(pa.table({"a": rows}))
    assert Table(tmp_path / "parts").batch([0, 1])["a"].tolist() == [1, 2]
    with pytest.raises(DataError, match="no rows"):
        Table(tmp_path / "parts/1.arrow")


@pytest.mark.parametrize("kept", ["a", "x"])
def test_who_keeps_a_column_keeps_that_alone(tmp_path: Path, kept: str) -> None:
    as_parquet(tmp_path / "t.parquet", pa.table(numbers()))
    table = Table(tmp_path / "t.parquet", {"x": ["a", "c"]} if kept == "x" else None)
    for _ in range(2):
        column = table.batch(np.arange(1000))[kept]
        assert column.base is None
        assert column.flags.owndata


def test_batches_of_a_loader_are_as_samples_collated(tmp_path: Path) -> None:
    as_parquet(tmp_path / "t.parquet", pa.table({n: numbers(50)[n] for n in "abcd"}))
    table = Table(tmp_path / "t.parquet", TOGETHER)
    by_item = default_collate([table[i] for i in range(10)])
    with contextlib.closing(Loader(table, 10, shuffle=False, executor="none")) as loader:
        for _ in range(2):
            assert same_bits(next(iter(loader)), by_item)


def test_columns_with_nothing_in_them(tmp_path: Path) -> None:
    """Of a buffer without bytes nobody says where it lies."""
    count = 20_000
    empty = {"text": [""] * count, "none": pa.nulls(count, pa.string()), "list": [[]] * count}
    table = pa.table({"i": np.arange(count), **empty})
    as_parquet(tmp_path / "t.parquet", table)
    pack(tmp_path / "t.parquet", tmp_path / "packed")
    found = Table(tmp_path / "packed").batch([0, count - 1])
    assert found["i"].tolist() == [0, count - 1]
    assert (found["text"], found["none"]) == (["", ""], [None, None])


def test_whole_numbers_that_a_float_cannot_hold_are_exact_in_a_column_with_gaps(
    tmp_path: Path,
) -> None:
    given = {
        "id": pa.array([None, 2**53 + 1, 5], pa.int64()),
        "few": pa.array([None, 2**53, 5], pa.uint64()),
        "none": pa.array([None] * 3, pa.int64()),
    }
    as_parquet(tmp_path / "t.parquet", pa.table(given))
    table = Table(tmp_path / "t.parquet")
    batch = table.batch([1, 2])
    assert batch["id"] == [table[1]["id"], 5] == [2**53 + 1, 5]
    assert table.batch([2, 0])["id"] == [5, None]
    assert batch["few"].tolist() == [float(2**53), 5.0]
    assert np.isnan(batch["none"]).all()


def typed() -> Any:
    """Columns of each type that a batch has as an array."""
    days = [datetime.date(2026, 1, 1 + i) for i in range(20)]
    times = [datetime.datetime(2026, 1, 1, i) for i in range(20)]
    numbers = {
        name: pa.array(range(20), kind)
        for name, kind in {
            "a": pa.float32(), "b": pa.float64(), "c": pa.int8(), "d": pa.int64(), "e": pa.uint8(),
        }.items()
    }  # fmt: skip
    return pa.table(
        {
            **numbers,
            "yes": [i % 3 == 0 for i in range(20)],
            "gap": pa.array([None, *range(19)], pa.int16()),
            "nan": pa.array([None, *range(19)], pa.float32()),
            "day": pa.array(days, pa.date32()),
            "day of ms": pa.array(days, pa.date64()),
            "time": pa.array(times, pa.timestamp("us")),
            "zone": pa.array(times, pa.timestamp("s", "UTC")),
            "missing": pa.array([None, *days[1:]], pa.date32()),
            "name": [str(i) for i in range(20)],
        }
    )


@pytest.mark.parametrize("kind", ["parquet", "arrow", "stream"])
@pytest.mark.parametrize("how", ["as it is", "packed"])
@pytest.mark.parametrize("executor", ["none", "processes"])
def test_batches_of_rows_are_of_the_types_of_whole_ones(
    kind: str, how: str, executor: Any, tmp_path: Path
) -> None:
    name, write = KINDS[kind]
    path = tmp_path / name
    write(path, typed())
    if how == "packed":
        pack(path, tmp_path / "packed")
        path = tmp_path / "packed"
    whole, by_row = (
        Loader(path, 8, transform=transform, executor=executor, workers=1)
        for transform in (None, dict)
    )
    with contextlib.closing(whole), contextlib.closing(by_row):
        for batches in zip(whole, by_row, strict=True):
            assert same_bits(*batches)


def test_floats_of_32_bits_stay_so_row_by_row(tmp_path: Path) -> None:
    as_csv(tmp_path / "t.csv", pa.table({"x": np.arange(50) / 7, "n": np.arange(50)}))
    pack(tmp_path / "t.csv", tmp_path / "packed", float32=True)
    row = Table(tmp_path / "packed")[3]
    assert (type(row["x"]), type(row["n"])) == (np.float32, np.int64)
    loader = Loader(tmp_path / "packed", 5, transform=lambda row: row, executor="none")
    batch = next(iter(loader))
    assert (batch["x"].dtype, batch["n"].dtype) == (torch.float32, torch.int64)


def test_rows_of_a_table_can_be_kept_as_records(tmp_path: Path) -> None:
    as_parquet(tmp_path / "t.parquet", typed())
    pack(tmp_path / "t.parquet", tmp_path / "packed", "records")
    table, records = Table(tmp_path / "t.parquet"), open_source(tmp_path / "packed")
    assert all(same_bits(records[i], table[i]) for i in range(1, 20))


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_rows_that_are_drawn_together_are_as_each_alone(kind: str, tmp_path: Path) -> None:
    name, write = KINDS[kind]
    write(tmp_path / name, typed())
    table = Table(tmp_path / name, {"both": ["c"], "all": ["d"]})
    rows = [3, 0, 19, -1]
    for _ in range(2):
        assert same_bits(table.__getitems__(rows), [table[row] for row in rows])
