from __future__ import annotations

import errno
import os
import random
import shutil
import tempfile
from collections import namedtuple
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from outpace.errors import DataError, UsageError
from outpace.measure.generators import random_states
from outpace.seams.generators import moved
from outpace.serve.keeping import default_folder, files_of, shelf_for
from outpace.serve.loader import Loader
from outpace.serve.making import BatchMaker
from outpace.serve.pack import pack
from outpace.serve.shelf import HELD, Shelf
from outpace.serve.sources import open_source
from tests.serve.test_shelf import Squares
from tests.serve.test_tars import tar


def test_the_shelf_is_named_by_what_is_on_it(tmp_path: Path) -> None:
    one = shelf_for(BatchMaker(Squares(), seed=0), tmp_path, None)[0].folder
    assert shelf_for(BatchMaker(Squares(), seed=1), tmp_path, None)[0].folder == one
    others = (
        BatchMaker(Squares(65), seed=0),
        BatchMaker(Squares(factor=2), seed=0),
        BatchMaker(Squares(), seed=0, prepare=lambda s: s["x"]),
    )
    assert one not in [shelf_for(other, tmp_path, None)[0].folder for other in others]


def test_another_way_to_prepare_the_same_few_samples_is_another_shelf(tmp_path: Path) -> None:
    """A mistake that only some others had is mended by it, for one."""

    def wrong(sample: dict[str, Any]) -> dict[str, Any]:
        return sample | {"wrong": False}

    def mended(sample: dict[str, Any]) -> dict[str, Any]:
        return sample | {"wrong": not sample}

    folders = [
        shelf_for(BatchMaker(Squares(), seed=0, prepare=each), tmp_path, None)[0].folder
        for each in (wrong, partial(wrong), mended, partial(mended))
    ]
    assert folders[0] == folders[1] != folders[2] == folders[3]


def test_random_samples_are_not_kept(tmp_path: Path) -> None:
    maker = BatchMaker(Squares(), seed=0, prepare=lambda s: s["x"] + np.random.rand())
    with pytest.raises(UsageError, match="prepared twice is not the same"):
        shelf_for(maker, tmp_path, None)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for i in range(30):
        path = tmp_path / f"data/{i:02}.txt"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"%02d" % i)
    return tmp_path / "data"


def test_a_file_that_changed_is_read_anew_by_the_next_run(folder: Path, tmp_path: Path) -> None:
    def texts() -> list[bytes]:
        loader = Loader(folder, 10, executor="none", shuffle=False, keep=tmp_path / "kept")
        return [text for batch in loader for text in batch["txt"]]

    assert texts() == texts() == [b"%02d" % i for i in range(30)]
    (folder / "17.txt").write_bytes(b"xx")
    assert texts()[17] == b"xx"


def test_what_files_were_is_known_of_every_store(folder: Path, tmp_path: Path) -> None:
    sources = {"records": folder, "table": tmp_path / "t.csv", "tars": tmp_path / "a.tar"}
    sources["parts"] = tmp_path / "shares"
    sources["parts"].mkdir()

    def write(text: str) -> None:
        (folder / "03.txt").write_text(text)
        sources["table"].write_text(f"a\n{text}\n")
        (sources["parts"] / "1.csv").write_text(f"a\n{text}\n")
        tar(sources["tars"], {"1.txt": text.encode()})
        for kind, source in sources.items():
            pack(source, tmp_path / kind, force=True)

    def told() -> list[str]:
        specs = [*sources.values(), *(tmp_path / kind for kind in sources)]
        return [files_of(open_source(spec)) for spec in specs]

    write("1")
    before = told()
    assert "" not in before
    assert told() == before
    write("23")
    assert all(one != other for one, other in zip(told(), before, strict=True))
    assert files_of(Squares()) == ""


def test_what_changed_behind_an_address_is_prepared_anew_by_the_next_run(tmp_path: Path) -> None:
    behind = pytest.importorskip("fsspec").filesystem("memory")
    place = f"kept-{tmp_path.name}"

    def texts() -> dict[str, bytes]:
        loader = Loader(f"memory://{place}", 10, executor="none", keep=tmp_path)
        pairs = (zip(batch["__key__"], batch["txt"], strict=True) for batch in loader)
        return {key: text for some in pairs for key, text in some}

    for i in range(30):
        behind.pipe(f"/{place}/{i:02}.txt", b"%02d" % i)
    first = texts()
    behind.pipe(f"/{place}/17.txt", b"another size")
    assert texts() == {**first, "17": b"another size"}
    behind.pipe(f"/{place}/125.txt", b"new")
    behind.rm(f"/{place}/10.txt")
    kept = {key: text for key, text in first.items() if key != "10"}
    assert texts() == {**kept, "17": b"another size", "125": b"new"}


def test_a_shelf_that_was_given_up_is_made_anew(tmp_path: Path) -> None:
    maker = BatchMaker(Squares(), seed=0)
    before, _ = shelf_for(maker, tmp_path, None)
    before.put(0, np.arange(3))
    before.give_up()
    shelf, said = shelf_for(maker, tmp_path, None)
    assert shelf.folder == before.folder
    assert said.startswith("0 of 64 samples are kept")
    assert shelf.put(0, np.arange(4))
    assert shelf.get(0).tolist() == [0, 1, 2, 3]
    assert before.get(0) is None


class Gone(Squares):
    def __getitem__(self, index: int) -> Any:
        if index == 0:
            raise OSError("gone")
        return super().__getitem__(index)


def test_a_sample_that_cannot_be_read_is_told_or_skipped_here_too(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="sample 0: OSError: gone"):
        next(iter(Loader(Gone(), 8, executor="none", keep=tmp_path)))
    loader = Loader(Gone(), 8, executor="none", keep=tmp_path, on_error="skip")
    for _ in range(2):
        assert sorted(i for batch in loader for i in batch["id"].tolist()) == list(range(1, 64))
    assert [one.sample for one in loader.skipped] == [0, 0]


def test_half_of_the_free_disk_may_be_taken_besides_what_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(10**12, 0, 20_000))
    maker = BatchMaker(Squares(), seed=0)
    shelf, _ = shelf_for(maker, tmp_path, None)
    assert shelf.limit == 10_000
    assert shelf.put(0, np.arange(100))
    again, _ = shelf_for(maker, tmp_path, None)
    assert again.limit == 10_000 + again.taken > 10_000
    assert shelf_for(maker, tmp_path, 5000)[0].limit == 5000


def fill(tmp_path: Path, factor: int, limit: int | None) -> tuple[Shelf, str]:
    """All samples of a data set, of which there is another version for each factor."""
    maker = BatchMaker(Squares(factor=factor), seed=0)
    shelf, said = shelf_for(maker, tmp_path, limit)
    assert shelf is not None
    for i in range(64):
        shelf.put(i, maker.prepared(i))
    return shelf, said


def taken(tmp_path: Path) -> int:
    return sum(path.stat().st_size for path in tmp_path.rglob("*.kept"))


def test_what_was_kept_of_data_that_changed_makes_room_for_what_it_is_now(tmp_path: Path) -> None:
    size = fill(tmp_path, 1, None)[0].taken
    limit = int(2.5 * size)
    second, said = fill(tmp_path, 2, limit)
    assert len(second) == 64
    assert "removed" not in said
    os.utime(second.folder / HELD, ns=(5, 5))  # used longest ago, but held
    third, said = fill(tmp_path, 3, limit)
    assert len(third) == 64
    assert "shelves removed to make room: 1" in said
    assert {index.parent for index in tmp_path.glob("*/index.npy")} == {second.folder, third.folder}
    assert taken(tmp_path) <= limit
    fourth, said = fill(tmp_path, 4, limit)  # all others are held
    assert "removed" not in said
    assert 0 < len(fourth) < 64
    assert taken(tmp_path) <= limit


def test_a_shelf_that_is_full_and_one_that_gets_nothing_take_no_room_from_others(
    tmp_path: Path,
) -> None:
    size = fill(tmp_path, 1, None)[0].taken
    fill(tmp_path, 2, None)
    for factor, limit in ((1, size), (3, 0)):
        _, said = fill(tmp_path, factor, limit)
        assert "removed" not in said
    assert len(list(tmp_path.glob("*/index.npy"))) == 3


@pytest.mark.parametrize("number", [(), (errno.ENOSPC, "No space left on device")])
def test_where_the_disk_is_full_nothing_is_kept_and_nothing_left_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: Any
) -> None:
    def full(path: Path, array: Any) -> None:
        path.write_bytes(b"some")
        raise OSError(*number)

    monkeypatch.setattr(np, "save", full)
    loader = Loader(Squares(), 8, executor="none", keep=tmp_path)
    assert sorted(i for batch in loader for i in batch["id"].tolist()) == list(range(64))
    assert loader.notes[0] == f"samples are not kept: the disk of {tmp_path} is full"
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and path.stat().st_size]


def test_what_is_kept_is_read_from_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    list(Loader(Squares(), 8, executor="none", keep=tmp_path))
    monkeypatch.setattr("outpace.serve.keeping.costs", full)
    source = Squares()
    loader = Loader(source, 8, executor="none", keep=tmp_path)
    list(loader)
    before = source.drawn
    assert sorted(i for batch in loader for i in batch["id"].tolist()) == list(range(64))
    assert source.drawn == before
    assert loader.notes[0].startswith("64 of 64 samples are kept")
    assert loader.notes[0].endswith(f"no more will be: the disk of {tmp_path} is full")


@pytest.mark.parametrize("size", [0, 60, 200, 2200])
def test_a_shelf_whose_index_is_cut_short_is_made_anew(tmp_path: Path, size: int) -> None:
    """As by a power failure."""
    list(Loader(Squares(), 8, executor="none", keep=tmp_path))
    (index,) = tmp_path.glob("*/index.npy")
    os.truncate(index, size)
    loader = Loader(Squares(), 8, executor="none", keep=tmp_path)
    assert sorted(i for batch in loader for i in batch["id"].tolist()) == list(range(64))
    assert loader.notes[0].startswith("0 of 64 samples are kept")


def test_finding_the_name_draws_nothing(tmp_path: Path) -> None:
    def prepare(sample: Any) -> Any:
        random.seed(1)
        return sample["x"] + random.random()

    before = random_states()
    shelf_for(BatchMaker(Squares(), seed=0, prepare=prepare), tmp_path, None)
    assert moved(before, random_states()) == set()


def test_a_folder_that_others_could_write_to_is_not_read_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    folder = default_folder()
    assert folder.stat().st_mode & 0o777 == 0o700
    assert default_folder() == folder
    folder.chmod(0o777)
    with pytest.raises(UsageError, match="others may write to it"):
        default_folder()
    folder.rmdir()
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    folder.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UsageError, match="belongs to somebody else"):
        default_folder()
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    with pytest.raises(UsageError, match="belongs to somebody else"):
        default_folder()


class Plain:
    """Compares by where it is."""

    def __init__(self, number: int) -> None:
        self.number = number


@dataclass
class Pair:
    x: Any
    y: Any


def test_objects_that_do_not_compare_are_kept(tmp_path: Path) -> None:
    def prepare(sample: Any) -> Any:
        return {"of": Plain(sample["id"]), "pair": Pair(sample["x"], sample["x"] + 1)}

    def numbers() -> list[int]:
        return [one["of"].number for batch in loader for one in batch]

    loader = Loader(
        Squares(), 8, prepare=prepare, collate=list, executor="none", shuffle=False, keep=tmp_path
    )
    assert numbers() == numbers() == list(range(64))
    assert loader.maker.shelf is not None
    assert not loader.maker.shelf.void
    changing = iter(range(1000))
    maker = BatchMaker(Squares(), seed=0, prepare=lambda sample: Plain(next(changing)))
    with pytest.raises(UsageError, match="prepared twice is not the same"):
        shelf_for(maker, tmp_path, None)


class Forgetful(dict[str, Any]):
    def __reduce__(self) -> Any:
        return dict, (dict(self),)


@pytest.mark.parametrize(
    ("prepare", "told"),
    [
        (lambda sample: {"of": [Forgetful(x=1)]}, "a Forgetful comes back as a dict"),
        (lambda sample: {"of": lambda: 1}, "sample 0 cannot be kept: "),
    ],
)
def test_what_would_not_come_back_is_not_kept(prepare: Any, told: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=told):
        shelf_for(BatchMaker(Squares(), seed=0, prepare=prepare), tmp_path, None)


def test_a_place_where_nothing_can_be_kept(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(UsageError, match=r"samples cannot be kept in .*file: ") as told:
        next(iter(Loader(Squares(), 8, executor="none", keep=tmp_path / "file")))
    assert "folder" in str(told.value.hint)


def test_a_small_shelf_is_named_by_all_that_is_on_it(tmp_path: Path) -> None:
    for size in range(1, 9):
        one = [float(i) for i in range(size)]
        for at in range(size):
            other = [*one[:at], 99.0, *one[at + 1 :]]
            names = {
                shelf_for(BatchMaker(each, seed=0), tmp_path, None)[0] for each in (one, other)
            }  # type: ignore[arg-type]
            assert len({shelf.folder for shelf in names}) == 2, (size, at)


def test_arrays_of_objects_are_compared_by_what_is_in_them(tmp_path: Path) -> None:
    def boxes(sample: dict[str, Any]) -> dict[str, Any]:
        ragged = np.empty(2, dtype=object)
        ragged[:] = [np.arange(2), np.arange(3)]
        return {"id": sample["id"], "boxes": ragged, "nan": torch.tensor([complex(np.nan, 0)])}

    loader = Loader(Squares(), 8, prepare=boxes, collate=list, executor="none", keep=tmp_path)
    assert len([sample for batch in loader for sample in batch]) == 64
    assert loader.maker.shelf is not None
    assert len(loader.maker.shelf) == 64


def test_a_sample_that_cannot_be_kept_is_given_all_the_same(tmp_path: Path) -> None:
    def prepared(sample: dict[str, Any]) -> dict[str, Any]:
        return {"id": sample["id"], "f": (lambda: 1) if sample["id"] == 50 else 0}

    loader = Loader(
        Squares(),
        8,
        prepare=prepared,
        collate=lambda some: [sample["id"] for sample in some],
        executor="none",
        keep=tmp_path,
        on_error="skip",
    )
    for _ in range(2):
        assert sorted(i for batch in loader for i in batch) == list(range(64))
    assert not loader.skipped
    assert loader.maker.shelf is not None
    assert len(loader.maker.shelf) == 63
