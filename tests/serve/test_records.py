from __future__ import annotations

import contextlib
import multiprocessing
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from outpace.errors import DataError
from outpace.serve import samples
from outpace.serve.batches import same_bits
from outpace.serve.files import Files
from outpace.serve.loader import Loader
from outpace.serve.pack import pack
from outpace.serve.records import Records
from outpace.serve.rows import split
from outpace.serve.verify import verify

KEPT: list[Any] = [
    {"__key__": "cat/0001", "jpg": b"\xff\xd8", "cls": 3},
    (torch.arange(6).reshape(2, 3), 7),
    [1, -2.5, True, None, "text", b"", {"a": (1, (2,))}],
    {1: np.float32(2.5), "x": np.arange(4, dtype=">i2"), "s": np.array("abc")},
    {"empty": torch.empty(0, 3, dtype=torch.bfloat16), "none": np.empty((2, 0))},
    torch.tensor([1.5, -2.0], dtype=torch.bfloat16),
    torch.tensor(True),
    torch.arange(12).reshape(3, 4).t()[1:],
    np.datetime64("2026-01-01"),
    2**63,
    {"__key__": "t\udce9", "inside": ("\udcff", ["é", "日本"])},
]


class Point(NamedTuple):
    x: int


class Tagged(torch.Tensor):
    """As torchvision's tv_tensors are."""


@pytest.mark.parametrize("sample", KEPT, ids=range(len(KEPT)))
def test_a_sample_comes_back_as_it_was(sample: Any) -> None:
    kept = samples.encode(sample)
    assert same_bits(samples.decode(kept), sample)
    for ahead in range(8):  # wherever it lies in memory
        buffer = bytearray(ahead) + bytearray(kept)
        assert same_bits(samples.decode(memoryview(buffer)[ahead:]), sample)


def test_arrays_may_be_written_to_and_lie_as_numbers_have_to(tmp_path: Path) -> None:
    """Those of a record stay in the memory that it was read into, where they can."""
    source = [{"pixels": np.zeros(5, np.uint8), "x": np.arange(3.0)} for _ in range(2)]
    pack(source, tmp_path / "packed", "records")
    records = Records(tmp_path / "packed")
    first, again = records[0], records[0]
    first["pixels"][:], first["x"][:] = 7, 7
    assert same_bits(again, source[0])
    assert again["x"].flags.aligned
    raw = np.frombuffer(records.raw(0), np.uint8)
    assert np.shares_memory(samples.decode(raw.data)["pixels"], raw)


@pytest.mark.parametrize(
    "sample",
    [
        *(object(), Point(1), np.array([object()]), 2**65, {"x": {1, 2}}, np.zeros(2, "i4,f4")),
        *(Tagged(torch.ones(2)), np.ma.masked_less(np.arange(3), 1), torch.eye(2).to_sparse()),
        np.arange(3).view(np.recarray),
    ],
    ids=[
        *("object", "named tuple", "array of objects", "huge", "set", "structured"),
        *("class of tensors", "masked", "sparse", "class of arrays"),
    ],
)
def test_what_would_not_come_back_is_refused(sample: Any) -> None:
    for make in (samples.encode, split):
        with pytest.raises(DataError, match="cannot be packed"):
            make(sample)


def test_a_parameter_and_an_array_in_a_file_are_no_more_than_their_numbers(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(3))
    mapped = np.load(tmp_path / "a.npy", mmap_mode="r")
    sample = {"parameter": torch.nn.Parameter(torch.ones(2)), "mapped": mapped}
    back = samples.decode(samples.encode(sample))
    assert torch.equal(back["parameter"], torch.ones(2))
    assert back["mapped"].tolist() == [0, 1, 2]
    assert [row.tolist() for row in split(sample)[1]] == [[1.0, 1.0], [0, 1, 2]]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    for i in range(20):
        path = tmp_path / f"data/{'cat' if i % 2 else 'dog'}/{i:02}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes([i]) * (100 + i))
    return tmp_path / "data"


@pytest.fixture
def packed(source: Path) -> Path:
    pack(source, source.parent / "packed")
    return source.parent / "packed"


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def test_records_are_the_samples_of_their_source(source: Path, packed: Path) -> None:
    records, files = Records(packed), Files(source)
    assert len(records) == 20
    assert [records[i] for i in range(20)] == [files[i] for i in range(20)]
    assert records[-1] == files[19]
    assert records.classes == ("cat", "dog")
    assert records.where(3) == f"{packed}/records.bin: record 3 (cat/07)"
    with pytest.raises(IndexError):
        records[20]


def _third(records: Records, answer: Callable[[Any], None]) -> None:
    answer(records[3])


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_other_processes_read_them(packed: Path, method: str) -> None:
    records = Records(packed)
    assert records[0]
    context: Any = multiprocessing.get_context(method)
    answers = context.SimpleQueue()
    child = context.Process(target=_third, args=(records, answers.put))
    child.start()
    assert answers.get() == records[3]
    child.join()
    assert pickle.loads(pickle.dumps(records))[3] == records[3]


def test_threads_read_them(packed: Path) -> None:
    records = Records(packed)
    with ThreadPoolExecutor(8) as pool:
        got = list(pool.map(records.__getitem__, list(range(20)) * 20))
    assert got == [records[i] for i in range(20)] * 20


def test_a_flipped_byte_is_told_with_its_record(packed: Path) -> None:
    flip(packed / "records.bin", int(Records(packed).offsets[7]) + 30)
    records = Records(packed)
    assert records[6]
    with pytest.raises(DataError, match=r"records\.bin: record 7 is damaged"):
        records[7]
    assert records.where(7) == f"{packed}/records.bin: record 7"
    assert records.damaged(lambda done, total: None) == ["record 7"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("records.bin", "bytes, and not the"),
        ("offsets.npy", "offsets.npy: "),
        ("meta.json", "meta.json: "),
    ],
)
def test_a_file_that_is_cut_off(packed: Path, name: str, message: str) -> None:
    data = (packed / name).read_bytes()
    (packed / name).write_bytes(data[: len(data) // 2])
    with pytest.raises(DataError, match=message):
        Records(packed)


@pytest.mark.parametrize("name", ["offsets.npy", "checksums.npy", "meta.json", "listing.npz"])
def test_flipped_bytes_of_an_index_are_told(packed: Path, name: str) -> None:
    """Wherever they are: as an error or by their records, never by a traceback."""
    right = (packed / name).read_bytes()
    wanted = [Records(packed)[i] for i in range(20)]
    rng = np.random.default_rng(0)
    for at in rng.integers(len(right), size=100).tolist():
        data = bytearray(right)
        data[at] ^= 1 << int(rng.integers(8))
        (packed / name).write_bytes(data)
        with contextlib.suppress(DataError):
            found = verify(packed, lambda phase, done, total: None)
            records = Records(packed)
            for index, one in enumerate(wanted):
                if f"record {index}" not in found.damaged:
                    assert records[index] == one


@pytest.mark.parametrize("place", [2**63, 2**40, 2**64 - 1])
def test_places_that_no_file_has(packed: Path, place: int) -> None:
    offsets = np.load(packed / "offsets.npy")
    offsets[7] = place
    np.save(packed / "offsets.npy", offsets)
    found = verify(packed, lambda phase, done, total: None)
    assert found.damaged == ("record 6", "record 7")
    with pytest.raises(DataError, match="the place of record 7 is damaged"):
        Records(packed)[7]


def test_what_is_packed_anew_is_not_read_by_the_index_of_what_was_there(tmp_path: Path) -> None:
    pack([(i, "a") for i in range(64)], tmp_path / "packed", "records")
    loader = Loader(tmp_path / "packed", 8, executor="processes", workers=1)
    try:
        assert sum(len(batch[0]) for batch in loader) == 64  # all checksums were looked at
        pack([("longer than it was", i) for i in range(64)], tmp_path / "packed", force=True)
        loader.close()
        with pytest.raises(DataError, match=r"records\.bin: it was replaced since it was opened"):
            list(loader)
    finally:
        loader.close()
