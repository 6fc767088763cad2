from __future__ import annotations

import json
import pickle
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from outpace.errors import DataError, UsageError
from outpace.serve.chunks import Chunks
from outpace.serve.files import Files
from outpace.serve.images import decode
from outpace.serve.keeping import files_of
from outpace.serve.loader import Loader
from outpace.serve.pack import Forecast, pack
from outpace.serve.sources import open_source
from outpace.serve.verify import verify
from tests.serve.test_hugging_face import png
from tests.serve.test_loader import WAYS

LEAF = {"type": None, "context": None, "children_spec": []}


def chunk(path: Path, records: list[bytes], before: bytes = b"") -> None:
    """A file as both formats have it."""
    start = 4 * (len(records) + 2) + len(before)
    ends = np.cumsum([0, *map(len, records)]) + start
    head = np.array([len(records), *ends], "<u4").tobytes()
    path.write_bytes(head + before + b"".join(records))


def record(values: list[bytes], told: list[int]) -> bytes:
    """Values behind one another, after the sizes of those whose sizes are told."""
    sizes = np.array([len(values[i]) for i in told], "<u4").tobytes()
    return sizes + b"".join(values)


def mds_folder(
    folder: Path, count: int = 40, per: int = 16, *, shard: dict[str, Any] | None = None
) -> Path:
    """Shards of an image, a number and an array of changing shape."""
    folder.mkdir()
    shards = []
    for number, first in enumerate(range(0, count, per)):
        indices = range(first, min(first + per, count))
        arrays = [
            bytes([34, 1 << 2, 1 + i % 3]) + np.full(1 + i % 3, i, "<f4").tobytes() for i in indices
        ]
        parts = zip(indices, arrays, strict=True)
        records = [record([a, b"JPEG%d" % i, struct.pack("<q", -i)], [0, 1]) for i, a in parts]
        name = f"shard.{number:05}.mds"
        chunk(folder / name, records, b'{"some": "config"}')
        shards.append(
            {
                "column_encodings": ["ndarray", "jpeg", "int"],
                "column_names": ["array", "image", "label"],
                "column_sizes": [None, None, 8],
                "compression": None,
                "format": "mds",
                "hashes": [],
                "raw_data": {"basename": name, "bytes": 0, "hashes": {}},
                "samples": len(records),
                "size_limit": 1 << 26,
                "version": 2,
                "zip_data": None,
                **(shard or {}),
            }
        )
    (folder / "index.json").write_text(json.dumps({"shards": shards, "version": 2}))
    return folder


def litdata_folder(folder: Path, count: int = 40, per: int = 16, **config: Any) -> Path:
    """Chunks of {"x": a flat tensor, "of": (number, text)}."""
    folder.mkdir()
    chunks = []
    for number, first in enumerate(range(0, count, per)):
        records = [
            record([np.full(2, i, "<f4").tobytes(), struct.pack("<q", i), b"t%d" % i], [0, 1, 2])
            for i in range(first, min(first + per, count))
        ]
        name = f"chunk-0-{number}.bin"
        chunk(folder / name, records)
        chunks.append({"chunk_bytes": 0, "chunk_size": len(records), "dim": None, "filename": name})
    pair = {"type": "builtins.tuple", "context": "null", "children_spec": [LEAF, LEAF]}
    nest = {"type": "builtins.dict", "context": '["x", "of"]', "children_spec": [LEAF, pair]}
    told = {
        "compression": None,
        "data_format": ["no_header_tensor:0", "int", "str"],
        "data_spec": json.dumps([1, nest]),
        "encryption": None,
        "item_loader": "PyTreeLoader",
        **config,
    }
    (folder / "index.json").write_text(json.dumps({"chunks": chunks, "config": told}))
    return folder


def test_samples_of_mds_in_any_order(tmp_path: Path) -> None:
    source = open_source(mds_folder(tmp_path / "mds"))
    assert len(source) == 40
    for index in (39, 0, 17, -1, 16, 15):
        sample, at = source[index], index % 40
        assert sample["image"] == b"JPEG%d" % at
        assert sample["label"] == -at
        assert sample["array"].tolist() == [at] * (1 + at % 3)
        assert sample["array"].dtype == np.float32
    with pytest.raises(IndexError):
        source[40]


def test_samples_of_litdata_are_the_nests_that_were_written(tmp_path: Path) -> None:
    source = open_source(litdata_folder(tmp_path / "lit"))
    sample = source[33]
    assert list(sample) == ["x", "of"]
    assert torch.equal(sample["x"], torch.full((2,), 33.0))
    assert sample["of"] == (33, "t33")


@pytest.mark.parametrize("make", [mds_folder, litdata_folder])
@pytest.mark.parametrize(("kind", "workers"), WAYS)
def test_a_loader_shuffles_them_fully_and_goes_on(
    tmp_path: Path, make: Any, kind: Any, workers: int
) -> None:
    def loader() -> Loader:
        return Loader(
            make(tmp_path / str(len(list(tmp_path.iterdir())))),
            8,
            transform=lambda s: s["label"] if "label" in s else -s["of"][0],
            executor=kind,
            workers=workers,
        )

    one, other = loader(), loader()
    epoch = [-n for batch in one for n in batch.tolist()]
    assert sorted(epoch) == list(range(40))
    assert len({n // 16 for n in epoch[:8]}) == 3  # chunks in the first batch
    batches = iter(one)
    for _ in range(2):
        next(batches)
    other.load_state_dict(one.state_dict())
    left = [batch.tolist() for batch in batches]
    assert [batch.tolist() for batch in other] == left != []
    one.close()
    other.close()


@pytest.mark.parametrize("make", [mds_folder, litdata_folder])
def test_they_pack_and_their_files_are_compared(tmp_path: Path, make: Any) -> None:
    folder = make(tmp_path / "data")
    told: list[Forecast] = []
    (folder / "README.md").write_text("not read")
    meta = pack(folder, tmp_path / "packed", begin=told.append)
    assert told[0].reason == "samples hold more than numbers and arrays"
    source, packed = open_source(folder), open_source(tmp_path / "packed")
    assert meta.count == 40
    assert str(packed[21]) == str(source[21])
    assert verify(tmp_path / "packed", lambda *_: None).source == "same"
    before = files_of(source)
    with next(folder.glob("*0.*")).open("ab") as file:
        file.write(b"x")
    assert files_of(open_source(folder)) != before != ""
    assert verify(tmp_path / "packed", lambda *_: None).source == "changed"


def test_samples_of_one_shape_are_packed_as_arrays(tmp_path: Path) -> None:
    folder = mds_folder(tmp_path / "mds")
    assert pack(folder, tmp_path / "records").kind == "records"
    index = json.loads((folder / "index.json").read_text())
    for number, shard in enumerate(index["shards"]):
        shard |= {"column_names": ["x"], "column_sizes": [8], "column_encodings": ["float64"]}
        records = [np.float64(16 * number + i).tobytes() for i in range(shard["samples"])]
        chunk(folder / shard["raw_data"]["basename"], records)
    (folder / "index.json").write_text(json.dumps(index))
    assert pack(folder, tmp_path / "arrays").kind == "arrays"
    assert [sample["x"] for sample in open_source(tmp_path / "arrays")] == list(range(40))  # type: ignore[attr-defined]


@pytest.mark.parametrize("make", [mds_folder, litdata_folder])
def test_images_may_be_made_smaller(tmp_path: Path, make: Any) -> None:
    """One sample a file, whose bytes are an image in place of what was there."""
    folder = make(tmp_path / "data", count=2, per=1)
    index = json.loads((folder / "index.json").read_text())
    if make is mds_folder:
        told = {"column_names": ["photo"], "column_encodings": ["png"], "column_sizes": [None]}
        index["shards"] = [{**shard, **told} for shard in index["shards"]]
    else:
        nest = {"type": "builtins.dict", "context": '["photo"]', "children_spec": [LEAF]}
        index["config"] |= {"data_spec": json.dumps([1, nest]), "data_format": ["image:png"]}
    (folder / "index.json").write_text(json.dumps(index))
    data = png(9)
    for path in [*folder.glob("*.mds"), *folder.glob("*.bin")]:
        chunk(path, [record([data], [0])])
    assert open_source(folder)[1] == {"photo": data}
    meta = pack(folder, tmp_path / "packed", resize=5)
    assert (meta.count, meta.grade) == (2, "learning")
    assert decode(open_source(tmp_path / "packed")[1]["photo"]).shape == (5, 6, 3)  # type: ignore[attr-defined]


def test_resizing_is_refused_where_no_images_are_told_of(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--resize is for encoded images"):
        pack(litdata_folder(tmp_path / "lit"), tmp_path / "packed", resize=5)


def test_chunks_pass_process_borders(tmp_path: Path) -> None:
    for source in (mds_folder(tmp_path / "m"), litdata_folder(tmp_path / "l")):
        found = open_source(source)
        assert str(pickle.loads(pickle.dumps(found))[30]) == str(found[30])


def test_a_cut_file_is_named(tmp_path: Path) -> None:
    folder = mds_folder(tmp_path / "mds")
    path = folder / "shard.00001.mds"
    path.write_bytes(path.read_bytes()[:-40])
    source = open_source(folder)
    with pytest.raises(DataError, match=r"shard.00001.mds: ends before byte"):
        source[31]
    loader = Loader(source, 8, transform=lambda s: s["label"], executor="none", on_error="skip")
    assert sum(len(batch) for batch in loader) == 38
    assert all("shard.00001.mds: record 1" in one.where for one in loader.skipped)
    (folder / "shard.00002.mds").write_bytes(b"\x09" + bytes(80))
    with pytest.raises(DataError, match=r"shard.00002.mds: 9 records, 8 by its index"):
        open_source(folder)[39]


def test_a_record_that_is_not_as_the_index_says_is_named(tmp_path: Path) -> None:
    folder = litdata_folder(tmp_path / "lit", data_format=["no_header_tensor:0", "int", "float"])
    with pytest.raises(DataError, match=r"chunk-0-1.bin: record 2: not what its index says"):
        open_source(folder)[18]


@pytest.mark.parametrize(
    ("config", "match"),
    [
        ({"item_loader": "TokensLoader"}, "TokensLoader"),
        ({"compression": "zstd"}, "compression zstd"),
        ({"data_format": ["no_header_tensor:0", "int", "pickle"]}, "hold pickle"),
        ({"data_format": ["int"]}, "shape that is not known"),
        ({"data_spec": json.dumps([2, LEAF])}, "version 2"),
        ({"data_spec": "nonsense"}, "index.json"),
    ],
)
def test_what_is_not_read_of_litdata_is_told(tmp_path: Path, config: Any, match: str) -> None:
    with pytest.raises(DataError, match=match):
        open_source(litdata_folder(tmp_path / "lit", **config))


@pytest.mark.parametrize(
    ("shard", "match"),
    [
        ({"column_encodings": ["ndarray", "pkl", "int"]}, "'image' is pkl"),
        ({"format": "json"}, "format json"),
        (
            {
                "raw_data": {"basename": "nowhere.mds"},
                "zip_data": {"basename": "nowhere.mds.zstd"},
                "compression": "zstd",
            },
            r"nowhere.mds is there compressed only \(zstd\)",
        ),
    ],
)
def test_what_is_not_read_of_mds_is_told(tmp_path: Path, shard: Any, match: str) -> None:
    with pytest.raises(DataError, match=match):
        open_source(mds_folder(tmp_path / "mds", shard=shard))


def test_another_index_is_a_file_as_others(tmp_path: Path) -> None:
    (tmp_path / "index.json").write_text('{"chunks": [1, 2]}')
    assert isinstance(open_source(tmp_path), Files)


def rows() -> list[dict[str, Any]]:
    rng = np.random.default_rng(0)
    return [
        {
            "image": b"\xff\xd8\xff%d" % i,
            "label": i,
            "text": "é" * (i % 4),
            "flat": rng.random(i % 3).astype(np.float32),
            "array": rng.random((2, 3)),
        }
        for i in range(50)
    ]


def test_what_mosaicml_streaming_wrote(tmp_path: Path) -> None:
    streaming = pytest.importorskip("streaming", exc_type=ImportError)
    columns = {
        "image": "bytes",
        "label": "int",
        "text": "str",
        "array": "ndarray",
        "small": "uint8",
        "fixed": "ndarray:int16:2,2",
        "typed": "ndarray:float32",
        "more": "json",
        "digits": "str_int",
    }
    written = [
        {
            **{name: row[name] for name in ("image", "label", "text", "array")},
            "small": np.uint8(i),
            "fixed": np.full((2, 2), i, np.int16),
            "typed": np.arange(1 + i % 300, dtype=np.float32),
            "more": {"deep": [i]},
            "digits": 10**20 + i,
        }
        for i, row in enumerate(rows())
    ]
    with streaming.MDSWriter(out=str(tmp_path / "mds"), columns=columns, size_limit=4000) as out:
        for row in written:
            out.write(row)
    source, theirs = open_source(tmp_path / "mds"), streaming.LocalDataset(str(tmp_path / "mds"))
    assert isinstance(source, Chunks)
    assert len(source.chunks) > 3
    assert len(source) == len(theirs) == 50
    for i in (49, 0, 23, 31):
        assert source[i].keys() == theirs[i].keys()
        for name, value in theirs[i].items():
            assert type(source[i][name]) is type(value)
            assert np.array_equal(source[i][name], value)
            assert getattr(source[i][name], "dtype", None) == getattr(value, "dtype", None)


def test_what_litdata_wrote(tmp_path: Path) -> None:
    pytest.importorskip("litdata", exc_type=ImportError)
    from litdata import StreamingDataset
    from litdata.streaming import Cache

    cache = Cache(input_dir=str(tmp_path / "lit"), chunk_size=12)
    written = [
        {
            **row,
            "tensors": [torch.full((3,), i, dtype=torch.int16), torch.full((2, 2), i / 3)],
            "more": (i / 7, i % 2 == 0, np.arange(i % 5)),
        }
        for i, row in enumerate(rows())
    ]
    for i, row in enumerate(written):
        cache[i] = row
    cache.done()
    cache.merge()
    source, theirs = open_source(tmp_path / "lit"), StreamingDataset(str(tmp_path / "lit"))
    assert isinstance(source, Chunks)
    assert len(source) == len(theirs) == 50
    for i in (49, 0, 23, 31):
        for found in (theirs[i], written[i]):
            assert str(source[i] | {"image": None}) == str(found | {"image": None})
            assert source[i]["image"] == bytes(found["image"])


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_record_of_no_bytes_does_not_end_a_pack(tmp_path: Path, jobs: int) -> None:
    """As a shard whose table of places was half written."""
    folder = mds_folder(tmp_path / "mds", count=400, per=400)
    shard = folder / "shard.00000.mds"
    data = bytearray(shard.read_bytes())
    begins = struct.unpack_from("<I", data, 4 * (1 + 205))[0]
    struct.pack_into("<I", data, 4 * (1 + 206), begins)  # record 205 ends where it begins
    shard.write_bytes(data)
    with pytest.raises(DataError, match=r"mds: record 205: not what its index says: 0 bytes"):
        pack(folder, tmp_path / "packed", jobs=jobs)
    meta = pack(folder, tmp_path / "packed", jobs=jobs, skip=True)
    assert meta.count == 398  # the next one begins too soon
    assert [one.path.rpartition(" ")[2] for one in meta.skipped] == ["205", "206"]
