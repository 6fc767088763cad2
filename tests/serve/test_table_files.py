"""Texts whose lines are long or whose columns change, and tables in parts."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from outpace.errors import DataError, UsageError
from outpace.serve import table_files
from outpace.serve.batches import same_bits
from outpace.serve.loader import Loader
from outpace.serve.pack import Forecast, pack
from outpace.serve.sources import open_source
from outpace.serve.tables import Table
from outpace.serve.verify import verify
from tests.serve.test_tables import as_arrow, as_csv, as_lines, as_parquet, as_stream

pa = pytest.importorskip("pyarrow")


def rows_of(table: Any) -> list[dict[str, Any]]:
    return [table[i] for i in range(len(table))]


def both(path: Path) -> list[Table]:
    """As it is, and packed."""
    pack(path, path.parent / "packed")
    return [Table(path), Table(path.parent / "packed")]


def test_texts_of_several_lines(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    text = "word\n" * 100
    path.write_text("i,text\n" + "".join(f'{i},"{text}"\n' for i in range(5000)))
    for table in both(path):
        assert len(table) == 5000
        assert table[4321] == {"i": 4321, "text": text}


def test_texts_of_several_lines_are_never_taken_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks that begin in the midst of such a text give other rows, and no error."""
    monkeypatch.setattr(table_files, "PARALLEL", 64)
    path, rng = tmp_path / "t.csv", np.random.default_rng(0)
    for _ in range(50):
        texts = ["".join(rng.choice([*'ab1, \n"'], rng.integers(1, 40))) for _ in range(30)]
        quoted = ('"' + text.replace('"', '""') + '"' for text in texts)
        path.write_text("text\n" + "".join(f"{one}\n" for one in quoted))
        assert [row["text"] for row in rows_of(Table(path))] == texts


def test_long_lines(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    lines = [{"i": 0, "text": "a"}, {"i": 1, "text": "b" * 2**21}, {"i": 2, "text": "c"}]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    for table in both(path):
        assert rows_of(table) == lines


@pytest.mark.parametrize("name", ["t.csv", "t.jsonl"])
def test_lines_that_are_too_long_are_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(table_files, "PARALLEL", 1024)
    monkeypatch.setattr(table_files, "PARSED", 2**20)
    long = "b" * 2**22
    lines = [f'{{"a": "{text}"}}' for text in ("x", long, "y")]
    path = tmp_path / name
    path.write_text("\n".join(["a", "x", long, "y"] if name == "t.csv" else lines) + "\n")
    for read in (Table, lambda path: pack(path, tmp_path / "packed")):
        with pytest.raises(DataError, match=r"a line, .* is longer than 1 MiB") as error:
            read(path)
        assert "Parquet" in str(error.value.hint)


def texts(kind: str, rows: list[dict[str, Any]]) -> str:
    if kind == "jsonl":
        return "".join(json.dumps(row) + "\n" for row in rows)
    lines = [",".join("" if v is None else str(v) for v in row.values()) for row in rows]
    return "\n".join([",".join(rows[0]), *lines]) + "\n"


LATE: dict[str, tuple[str, Any, Any]] = {
    "floats": ("csv", 1, 2.5),
    "text": ("csv", 1, "text"),
    "what was not there": ("csv", None, 7),
    "floats of JSON": ("jsonl", 1, 2.5),
    "what was not there in JSON": ("jsonl", None, "text"),
}


@pytest.mark.parametrize("case", LATE)
def test_columns_that_turn_out_to_be_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    monkeypatch.setattr(table_files, "PARSED", 4096)
    kind, early, late = LATE[case]
    path = tmp_path / f"t.{kind}"
    path.write_text(
        texts(kind, [{"i": i, "a": early} for i in range(5000)] + [{"i": -1, "a": late}])
    )
    told: list[Forecast] = []
    meta = pack(path, tmp_path / "packed", begin=told.append)
    assert meta.count == 5001
    assert told[-1].note.endswith("it is read anew, whole, so that columns suit all of it")
    found = open_source(tmp_path / "packed")
    assert found[5000] == {"i": -1, "a": late}
    if case == "what was not there":  # a gap among numbers
        assert np.isnan(found[0]["a"])
    else:
        assert found[0]["a"] == (str(early) if isinstance(late, str) and early else early)
    assert all(map(same_bits, rows_of(found), rows_of(Table(path))))


def test_keys_that_come_late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_files, "PARSED", 4096)
    path = tmp_path / "t.jsonl"
    path.write_text(texts("jsonl", [{"i": i} for i in range(5000)]) + '{"i": -1, "new": true}\n')
    pack(path, tmp_path / "packed")
    found = open_source(tmp_path / "packed")
    assert (found[0], found[5000]) == ({"i": 0, "new": None}, {"i": -1, "new": True})


def test_what_cannot_be_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_files, "PARSED", 4096)
    monkeypatch.setattr(table_files, "free_memory", lambda: 10_000)
    path = tmp_path / "t.csv"
    path.write_text("a\n" + "1\n" * 10_000 + "text\n")
    with pytest.raises(DataError, match=r"t\.csv: .*text") as error:
        pack(path, tmp_path / "packed")
    assert "as Parquet" in str(error.value.hint)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["t.csv"]


def test_rows_that_are_left_out_are_listed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_files, "PARSED", 4096)
    path = tmp_path / "t.csv"
    path.write_text("a\n" + "1\n" * 1000 + "2,3\n" + "1\n" * 5000 + "text\n")
    with pytest.raises(DataError, match=r"t\.csv: .*2,3") as error:
        pack(path, tmp_path / "packed")
    assert "--on-error skip" in str(error.value.hint)
    meta = pack(path, tmp_path / "packed", skip=True)
    assert (meta.count, len(meta.skipped)) == (6001, 1)


NAMES = [f"name {i // 10}" for i in range(900)]


@pytest.mark.parametrize("name", ["t.parquet", "t.arrow"])
def test_dictionaries_that_differ(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Each batch has its own."""
    monkeypatch.setattr(table_files, "ROWS", 150)
    path = tmp_path / name
    parts = [pa.array(NAMES[i : i + 300]).dictionary_encode() for i in (0, 300, 600)]
    table = pa.table({"name": pa.chunked_array(parts), "i": range(900)})
    (as_parquet if name == "t.parquet" else as_stream)(path, table)
    for table in both(path):
        assert table.batch(np.array([5, 899, 301]))["name"] == ["name 0", "name 89", "name 30"]


def test_dictionaries_that_differ_inside_of_others(tmp_path: Path) -> None:
    path = tmp_path / "t.arrow"
    parts = [pa.array(NAMES[i : i + 300]).dictionary_encode() for i in (0, 300, 600)]
    batches = [pa.record_batch({"s": pa.StructArray.from_arrays([p], ["n"])}) for p in parts]
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, batches[0].schema) as out:
        for batch in batches:
            out.write_batch(batch)
    assert Table(path)[899] == {"s": {"n": "name 89"}}
    with pytest.raises(DataError, match=r"t\.arrow: Dictionary"):
        pack(path, tmp_path / "packed")


@pytest.mark.parametrize("name", ["t.csv", "t.parquet", "t.arrow"])
def test_two_columns_of_one_name(tmp_path: Path, name: str) -> None:
    table = pa.table([[1, 2], [3, 4], [5, 6]], ["a", "b", "a"])
    {"t.csv": as_csv, "t.parquet": as_parquet, "t.arrow": as_arrow}[name](tmp_path / name, table)
    for read in (Table, lambda path: pack(path, tmp_path / "packed")):
        with pytest.raises(DataError, match=rf"{name}: there are two columns 'a'"):
            read(tmp_path / name)


def test_a_first_batch_without_rows(tmp_path: Path) -> None:
    path = tmp_path / "t.arrow"
    schema = pa.schema({"a": pa.int64()})
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, schema) as out:
        for rows in ([], [1, 2], [], [3]):
            out.write_batch(pa.record_batch({"a": pa.array(rows, pa.int64())}))
    for table in both(path):
        assert rows_of(table) == [{"a": 1}, {"a": 2}, {"a": 3}]


PARTS: dict[str, tuple[str, Callable[[Path, Any], None]]] = {
    "csv": ("csv", as_csv),
    "jsonl": ("jsonl", as_lines),
    "parquet": ("parquet", as_parquet),
    "arrow": ("arrow", as_arrow),
    "stream": ("arrow", as_stream),
}


@pytest.mark.parametrize("kind", PARTS)
def test_parts_of_one_table(tmp_path: Path, kind: str) -> None:
    suffix, write = PARTS[kind]
    folder = tmp_path / "parts"
    folder.mkdir()
    (folder / "_SUCCESS").write_text("")
    (folder / "README.md").write_text("flights")
    rows = [{"i": i, "x": i / 2, "name": f"row {i}"} for i in range(900)]
    for part in range(3):
        write(folder / f"part-{part}.{suffix}", pa.Table.from_pylist(rows[300 * part :][:300]))
    told: list[Forecast] = []
    meta = pack(folder, tmp_path / "packed", begin=told.append)
    assert (meta.kind, meta.count, meta.source.files) == ("table", 900, 3)
    assert told[0].reason == "it is a table in 3 parts"
    for source in (open_source(folder), open_source(tmp_path / "packed"), Table(folder)):
        assert rows_of(source) == rows
    (batch,) = Loader(folder, 900, shuffle=False, executor="none")
    assert batch["i"].tolist() == list(range(900))
    assert pack(folder, tmp_path / "records", "records").count == 900

    def verified() -> Any:
        return verify(tmp_path / "packed", lambda phase, done, total: None)

    assert (verified().source, verified().right) == ("same", True)
    write(folder / f"part-3.{suffix}", pa.Table.from_pylist(rows[:1]))
    assert verified().changed == (f"part-3.{suffix}",)


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_parts_of_other_types(tmp_path: Path, kind: str) -> None:
    suffix, write = PARTS[kind]
    (tmp_path / "parts").mkdir()
    for part, number in enumerate((1, 2.5)):
        write(tmp_path / f"parts/{part}.{suffix}", pa.table({"a": [number], "b": ["x"]}))
    for table in both(tmp_path / "parts"):
        assert rows_of(table) == [{"a": 1.0, "b": "x"}, {"a": 2.5, "b": "x"}]


@pytest.mark.parametrize(
    ("kind", "parts"),
    [
        ("csv", (1, "A7")),
        ("csv", ("A7", 1)),
        ("csv", ("US", "NA")),
        ("csv", ("a", "")),
        ("jsonl", ("2020-01-01", "unknown")),
    ],
)
def test_a_column_that_is_text_in_one_part_is_text_in_all(
    tmp_path: Path, kind: str, parts: tuple[Any, Any]
) -> None:
    (tmp_path / "parts").mkdir()
    for number, value in enumerate(parts):
        text = f"a,b\n{value},1\n" if kind == "csv" else json.dumps({"a": value, "b": 1})
        (tmp_path / f"parts/{number}.{kind}").write_text(text)
    for table in both(tmp_path / "parts"):
        assert rows_of(table) == [{"a": str(value), "b": 1} for value in parts]


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_parts_of_other_columns(tmp_path: Path, kind: str) -> None:
    suffix, write = PARTS[kind]
    (tmp_path / "parts").mkdir()
    write(tmp_path / f"parts/1.{suffix}", pa.table({"a": [1], "b": [2]}))
    write(tmp_path / f"parts/2.{suffix}", pa.table({"b": [1], "a": [2]}))
    for table in both(tmp_path / "parts"):
        assert rows_of(table) == [{"a": 1, "b": 2}, {"a": 2, "b": 1}]
    write(tmp_path / f"parts/3.{suffix}", pa.table({"a": [1], "c": [2]}))
    for read in (Table, lambda path: pack(path, tmp_path / "none")):
        with pytest.raises(DataError, match=r"3\.\w+ and .*1\.\w+ do not have .*'b', 'c'"):
            read(tmp_path / "parts")


def test_a_folder_without_a_table(tmp_path: Path) -> None:
    (tmp_path / "1.jpg").write_bytes(b"x")
    with pytest.raises(DataError, match="there is no table in it"):
        Table(tmp_path)


@pytest.mark.parametrize(("name", "write"), [("t.csv", as_csv), ("t.parquet", as_parquet)])
def test_floats_of_64_bits_as_32(
    tmp_path: Path, name: str, write: Callable[[Path, Any], None]
) -> None:
    """Those that ``float()`` makes of them, overflow and gaps included."""
    rng = np.random.default_rng(0)
    wide = np.concatenate([rng.normal(size=997) * 10.0 ** rng.integers(-44, 44, 997), [1e300, 0.1]])
    path = tmp_path / name
    write(path, pa.table({"wide": wide, "count": np.arange(999), "name": ["a"] * 999}))
    meta = pack(path, tmp_path / "packed", float32=True)
    assert (meta.grade, meta.options["float32"]) == ("numerics", True)
    before, after = Table(path).batch(range(999)), Table(tmp_path / "packed").batch(range(999))
    narrow = torch.from_numpy(before["wide"]).float()
    assert np.isinf(after["wide"][997])
    assert after["wide"].tobytes() == narrow.numpy().tobytes()
    assert after["count"].tobytes() == before["count"].tobytes()
    assert after["name"] == before["name"]
    assert verify(tmp_path / "packed", lambda *_: None).right


def test_only_a_table_that_is_packed_as_one_has_its_floats_made_smaller(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    as_csv(path, pa.table({"x": np.arange(9.0)}))
    with pytest.raises(UsageError, match="--float32 is of a table"):
        pack(path, tmp_path / "packed", "records", float32=True)
    assert not (tmp_path / "packed").exists()


@pytest.mark.parametrize("late", [True, False])
def test_whole_numbers_that_64_bits_do_not_hold_are_not_rounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, late: bool
) -> None:
    monkeypatch.setattr(table_files, "PARSED", 4096)
    path = tmp_path / "t.csv"
    before = "".join(f"{i},0.5\n" for i in range(2000)) if late else ""
    path.write_text(f"id,x\n{before}10000000000000000001,0.5\n")
    with pytest.raises(DataError, match="10000000000000000001 of column 'id' does not fit") as told:
        pack(path, tmp_path / "packed")
    assert "Parquet" in str(told.value.hint)
    with pytest.raises(DataError, match="would be rounded"):
        Table(path)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("t.csv", "x,id\n1, 18446744073709551615\n"),
        ("t.jsonl", '{"id": 9007199254740993}\n{"id": 18446744073709551615}\n'),
    ],
)
def test_whole_numbers_are_whole_with_a_blank_and_in_json_too(
    tmp_path: Path, name: str, text: str
) -> None:
    (tmp_path / name).write_text(text)
    for read in (Table, lambda path: pack(path, tmp_path / "packed")):
        with pytest.raises(DataError, match="18446744073709551615 of column 'id' does not fit"):
            read(tmp_path / name)


def test_a_column_of_large_floats_is_looked_through_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_files, "PARSED", 4096)
    looked: list[str] = []
    look = table_files._in_csv
    monkeypatch.setattr(
        table_files, "_in_csv", lambda file, name: [looked.append(name), *look(file, name)][1:]
    )
    path = tmp_path / "t.csv"
    path.write_text("x,y\n" + "inf,0.5\n" * 5000)
    assert pack(path, tmp_path / "packed").count == 5000
    assert looked == ["x"]


def test_texts_that_are_views_of_others(tmp_path: Path) -> None:
    """As some programs write them; rows of such columns cannot be taken."""
    views = pa.table({"text": pa.array(["a", "b", None]).cast(pa.string_view()), "n": [1, 2, 3]})
    path = tmp_path / "t.arrow"
    as_arrow(path, views)
    for table in both(path):
        assert table.batch([2, 0])["text"] == [None, "a"]


def test_floats_may_be_as_large_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("x,y\n1e30,1e300\n10000000000000000000.0,inf\n-2.5e19,nan\n")
    pack(path, tmp_path / "packed")
    found = open_source(tmp_path / "packed")
    assert [found[i]["x"] for i in range(3)] == [1e30, 1e19, -2.5e19]


def test_a_parquet_of_large_rows_is_read_few_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_files, "HELD", 100_000)
    rows = [{"i": i, "image": np.random.default_rng(i).bytes(1000)} for i in range(1000)]
    path = tmp_path / "t.parquet"
    table = table_files.pyarrow("parquet").Table.from_pylist(rows)
    table_files.pyarrow("parquet").parquet.write_table(table, str(path))
    _, batches, count = table_files.batches_of(path, None)
    sizes = [batch.num_rows for batch in batches]
    assert count == sum(sizes) == 1000
    assert max(sizes) <= 100


def test_a_folder_named_like_a_value_is_no_column(tmp_path: Path) -> None:
    folder = tmp_path / "year=2025"
    folder.mkdir()
    path = folder / "t.parquet"
    table = table_files.pyarrow("parquet").Table.from_pylist([{"i": 1}])
    table_files.pyarrow("parquet").parquet.write_table(table, str(path))
    assert Table(path)[0] == {"i": 1}
