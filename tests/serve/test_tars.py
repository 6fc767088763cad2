from __future__ import annotations

import contextlib
import io
import os
import pickle
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from outpace.errors import DataError
from outpace.serve import tars
from outpace.serve.pack import pack
from outpace.serve.sources import open_source
from outpace.serve.tars import Tars
from tests.serve.test_records import flip


def tar(path: Path, members: dict[str, bytes], **how: Any) -> Path:
    with tarfile.open(path, "w", **how) as file:
        for name, data in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            file.addfile(member, io.BytesIO(data))
    return path


@pytest.fixture
def shards(tmp_path: Path) -> list[Path]:
    (tmp_path / "shards").mkdir()
    found = []
    for shard in range(3):
        members: dict[str, bytes] = {}
        for i in range(10 * shard, 10 * shard + 10):
            members |= {f"{i:04}.jpeg": bytes([i]) * (600 + i), f"{i:04}.cls": b"%d\n" % (i % 4)}
            members |= {f"{i:04}.seg.png": b"seg"}
        found.append(tar(tmp_path / f"shards/train-{shard}.tar", members))
    return found


def test_members_with_one_key_are_a_sample(shards: list[Path]) -> None:
    found = Tars(shards)
    assert len(found) == 30
    assert found.classes is None
    assert found[17] == {
        "__key__": "0017", "jpg": bytes([17]) * 617, "cls": 1, "seg.png": b"seg",
    }  # fmt: skip
    assert found.where(17) == f"{shards[1]}: 0017"
    assert pickle.loads(pickle.dumps(found))[29] == found[29]


def test_an_index_gives_the_same_without_a_copy(
    shards: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tars, "MOST_OPEN", 2)
    wanted = list(Tars(shards))  # type: ignore[call-overload]
    meta = pack(tmp_path / "shards", tmp_path / "index")
    assert (meta.kind, meta.count, meta.grade) == ("tars", 30, "exact")
    assert meta.why == "nothing is copied"
    index: Any = open_source(tmp_path / "index")
    assert list(index) == wanted
    assert list(pickle.loads(pickle.dumps(index))) == wanted
    size = sum(file.stat().st_size for file in (tmp_path / "index").iterdir())
    assert size < sum(shard.stat().st_size for shard in shards) / 5


def test_folders_of_keys_are_classes(tmp_path: Path) -> None:
    members = {f"./data/{name}/{i}.jpg": b"x" for name in ("dog", "cat") for i in range(2)}
    found = Tars([tar(tmp_path / "a.tar", {**members, "./data/._junk.jpg": b"", "LICENSE": b""})])
    assert found.classes == ("cat", "dog")
    assert [found[i]["cls"] for i in range(4)] == [1, 1, 0, 0]
    assert found[0]["__key__"] == "data/dog/0"
    pack(tmp_path / "a.tar", tmp_path / "index")
    assert [open_source(tmp_path / "index")[i]["cls"] for i in range(4)] == [1, 1, 0, 0]
    flat = Tars([tar(tmp_path / "b.tar", {"train/1.jpg": b"", "train/2.jpg": b""})])
    assert flat.classes is None
    assert "cls" not in flat[0]


def test_a_shard_that_has_changed(shards: list[Path], tmp_path: Path) -> None:
    pack(shards, tmp_path / "index")
    flip(shards[1], shards[1].read_bytes().index(bytes([15]) * 615))
    found = Tars.packed(tmp_path / "index")
    assert found[14]
    with pytest.raises(DataError, match=r"train-1\.tar: member 0015\.jpg is not as it was indexed"):
        found[15]
    assert found.damaged(lambda done, total: None) == [f"{shards[1]}: 0015.jpg"]
    shards[2].write_bytes(shards[2].read_bytes()[:5000])
    with pytest.raises(DataError, match=r"train-2\.tar: ends before byte"):
        found[29]
    shards[2].unlink()
    with pytest.raises(DataError, match=r"train-2\.tar: No such file"):
        Tars.packed(tmp_path / "index")[29]


@pytest.mark.parametrize("most_open", [0, 256])
def test_a_shard_that_is_replaced_before_it_is_read(
    shards: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most_open: int
) -> None:
    """Another of the same form would be read at the old one's places, by the old one's names."""
    monkeypatch.setattr(tars, "MOST_OPEN", most_open)
    found = Tars(shards)
    other = tar(tmp_path / "other.tar", {"x.jpg": bytes(8), "x.cls": b"7"})
    other.replace(shards[1])
    with pytest.raises(DataError, match=r"train-1\.tar: it was replaced since it was opened"):
        found[10]
    assert found[0]["cls"] == 0


def test_what_is_no_whole_tar(shards: list[Path], tmp_path: Path) -> None:
    cut = tmp_path / "cut.tar"
    cut.write_bytes(shards[0].read_bytes()[:1500])
    with pytest.raises(DataError, match=r"cut\.tar: no whole tar") as told:
        Tars([cut])
    assert told.value.hint is None
    with tarfile.open(tmp_path / "packed.tar", "w:gz") as file:
        file.add(shards[0])
    with pytest.raises(DataError, match=r"packed\.tar: no whole tar") as told:
        Tars([tmp_path / "packed.tar"])
    assert "uncompress" in str(told.value.hint)
    with pytest.raises(DataError, match="no samples"):
        Tars([tar(tmp_path / "empty.tar", {})])
    twice = tmp_path / "twice.tar"
    tar(twice, {"a.jpg": b"1", "a.JPEG": b"2"})
    with pytest.raises(DataError, match=r"twice\.tar: member a\.JPEG is there twice"):
        Tars([twice])


@pytest.mark.parametrize("how", ["gz", "bz2", "xz"])
def test_a_compressed_tar_is_to_be_uncompressed(tmp_path: Path, how: str) -> None:
    path = tmp_path / "a.tar"
    with tarfile.open(path, f"w:{how}") as file:  # type: ignore[call-overload]
        file.addfile(tarfile.TarInfo("1.jpg"))
    with pytest.raises(DataError, match="no whole tar") as told:
        Tars([path])
    assert "uncompress it first" in str(told.value.hint)


def test_a_damaged_header_does_not_end_a_tar(shards: list[Path]) -> None:
    with tarfile.open(shards[1]) as file:
        at = file.getmembers()[9].offset
    flip(shards[1], at + 148)  # in its checksum
    with pytest.raises(DataError, match=rf"train-1\.tar: what is at byte {at:,} is no header"):
        Tars(shards)
    shards[1].write_bytes(shards[1].read_bytes()[: at + 100])
    with pytest.raises(DataError, match=rf"what is at byte {at:,} is no header"):
        Tars(shards)
    shards[1].write_bytes(shards[1].read_bytes()[:at])  # as some write it, without zeros at its end
    assert Tars(shards).sizes == [10, 3, 10]


def test_tars_that_were_put_together_are_not_cut_off(shards: list[Path], tmp_path: Path) -> None:
    size = shards[0].stat().st_size
    both = tmp_path / "both.tar"
    both.write_bytes(b"".join(shard.read_bytes() for shard in shards[:2]))
    with pytest.raises(DataError, match=rf"behind its end, from byte {size:,} on") as told:
        Tars([both])
    assert "name each of them" in str(told.value.hint)


@pytest.mark.parametrize("name", ["members.npy", "first.npy", "keys.npy", "ends.npy"])
def test_flipped_bytes_of_an_index_are_told(shards: list[Path], tmp_path: Path, name: str) -> None:
    """Wherever they are: as an error, and never by a traceback or as other samples."""
    pack(shards, tmp_path / "index")
    path = tmp_path / "index" / name
    right, rng = path.read_bytes(), np.random.default_rng(0)
    packed = Tars.packed(tmp_path / "index")
    wanted = [packed[index] for index in range(len(packed))]
    for at in rng.integers(len(right), size=200).tolist():
        data = bytearray(right)
        data[at] ^= 1 << int(rng.integers(8))
        path.write_bytes(data)
        with contextlib.suppress(DataError):
            found = Tars.packed(tmp_path / "index")
            assert [found[index] for index in range(len(found))] == wanted


def test_a_member_of_a_shard_that_is_not_there(shards: list[Path], tmp_path: Path) -> None:
    pack(shards, tmp_path / "index")
    members = np.load(tmp_path / "index/members.npy")
    members["shard"][4] = 99
    np.save(tmp_path / "index/members.npy", members)
    with pytest.raises(DataError, match=r"its index is damaged: members\.npy is not as it was"):
        Tars.packed(tmp_path / "index")


def test_a_class_may_be_none(tmp_path: Path) -> None:
    path = tar(tmp_path / "a.tar", {"1.cls": b"-1\n", "2.cls": b" 3 ", "3.cls": b"x"})
    assert [sample["cls"] for sample in Tars([path])] == [-1, 3, b"x"]  # type: ignore[attr-defined]


def test_members_that_are_links_are_not_left_out_without_a_word(tmp_path: Path) -> None:
    path = tar(tmp_path / "a.tar", {"1.jpg": b"picture"})
    with tarfile.open(path, "a") as file:
        link = tarfile.TarInfo("2.jpg")
        link.type, link.linkname = tarfile.LNKTYPE, "1.jpg"
        file.addfile(link)
    with pytest.raises(DataError, match=r"member 2\.jpg is a link to 1\.jpg"):
        Tars([path])


def test_names_that_an_index_cannot_hold_are_told_before_it_is_made(tmp_path: Path) -> None:
    odd = os.fsdecode(b"no\xe9l")
    path = tar(tmp_path / "a.tar", {f"{odd}/1.jpg": b"1", "dog/1.jpg": b"2"})
    with pytest.raises(DataError, match="not UTF-8"):
        pack([path], tmp_path / "index")
    assert not (tmp_path / "index").exists()
    (tmp_path / odd).mkdir()
    path = tar(tmp_path / odd / "a.tar", {"1.jpg": b"1"})
    with pytest.raises(DataError, match="not UTF-8"):
        pack([path], tmp_path / "index")


@pytest.mark.parametrize("odd", ["train//{}/1.jpg", "train/./{}/1.jpg", "/data/{}/1.jpg"])
def test_classes_of_folders_that_are_written_oddly(tmp_path: Path, odd: str) -> None:
    found = Tars([tar(tmp_path / "a.tar", {odd.format(name): b"" for name in ("dog", "cat")})])
    assert found.classes == ("cat", "dog")
    assert [found[i]["cls"] for i in range(2)] == [1, 0]


def test_a_field_that_an_index_cannot_hold_is_told(tmp_path: Path) -> None:
    odd = os.fsdecode(b"1.\xe9")
    path = tar(tmp_path / "a.tar", {odd: b"1"})
    with pytest.raises(DataError, match="not UTF-8"):
        pack([path], tmp_path / "index")
