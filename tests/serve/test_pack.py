"""Packing as a whole: what is stored, what is refused, and what faults leave behind."""

from __future__ import annotations

import errno
import io
import os
import shutil
import subprocess
import sys
import textwrap
from collections import namedtuple
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from outpace.errors import DataError, OutpaceError, UsageError
from outpace.measure.machine import usable_cores
from outpace.serve import pack as pack_module
from outpace.serve import packing
from outpace.serve.pack import Forecast, pack
from outpace.serve.packing import in_order
from outpace.serve.partial import LOCK, partial
from outpace.serve.records import INDEX, Records, RecordsWriter
from outpace.serve.sources import JOURNAL, open_source
from outpace.serve.tars import Tars
from outpace.serve.verify import verify
from tests.serve.test_records import flip
from tests.serve.test_tars import tar

MODULE = """
import random, time
import numpy as np
import torch

class Even:
    def __len__(self):
        return 200

    def __getitem__(self, index):
        return np.full(50, index, np.float32), index

def ends():
    raise SystemExit(3)

class Uneven(Even):
    def __getitem__(self, index):
        return np.zeros(5 if index == 133 else 4), index

class UnevenFirst(Even):
    def __getitem__(self, index):
        return np.zeros(4 if index else 5), index

class AllBroken(Even):
    def __getitem__(self, index):
        raise ValueError("no such row")

class Text(Even):
    def __getitem__(self, index):
        return {"text": f"number {index}"}

class Numbered(Even):
    def __getitem__(self, index):
        return {0: "a text", 1: index}

class Random(Even):
    def __getitem__(self, index):
        return torch.rand(3) if random.random() < 0.5 else torch.zeros(3)

class Broken(Even):
    def __getitem__(self, index):
        if index == 150:
            raise ValueError("no such row")
        return super().__getitem__(index)

class Unlabelled(Even):
    def __getitem__(self, index):
        return np.full(50, index, np.float32), None if index == 133 else index

class Nothing(Even):
    def __len__(self):
        return 0

class Wide(Even):
    def __getitem__(self, index):
        return {"ids": [index] * 80, "label": index}
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    name = f"data_{abs(hash(tmp_path))}"
    (tmp_path / f"{name}.py").write_text(MODULE)
    return name


def picture(width: int, height: int, mode: str = "RGB", kind: str = "JPEG", **how: Any) -> bytes:
    pixels = np.random.default_rng(width).integers(0, 255, (height, width, 3), dtype=np.uint8)
    out = io.BytesIO()
    Image.fromarray(pixels).convert(mode).save(out, kind, **how)
    return out.getvalue()


@pytest.fixture
def images(tmp_path: Path) -> Path:
    for i in range(40):
        path = tmp_path / f"data/{'cat' if i % 2 else 'dog'}/{i:02}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(picture(64 + i, 48))
    return tmp_path / "data"


def size_of(data: bytes) -> tuple[int, int]:
    with Image.open(io.BytesIO(data)) as image:
        image.load()
        return image.size


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def left_over(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name.startswith("."))


def test_resizing_is_graded_and_leaves_small_images_alone(images: Path, tmp_path: Path) -> None:
    small = picture(30, 20)
    (images / "cat/small.jpg").write_bytes(small)
    (images / "cat/wide.png").write_bytes(picture(300, 60, "RGBA", "PNG"))
    (images / "cat/grey.jpg").write_bytes(picture(50, 100, "L"))
    exif = Image.Exif()
    exif[0x0112] = 6
    exif[0x010E] = "a long description"
    (images / "cat/turned.jpg").write_bytes(picture(90, 80, exif=exif))
    meta = pack(images, tmp_path / "packed", resize=32, quality=80)
    assert (meta.grade, meta.options) == ("learning", {"as": "auto", "resize": 32, "quality": 80})
    assert "above 32 are resized" in meta.why
    found: Any = {sample["__key__"]: sample for sample in open_source(tmp_path / "packed")}  # type: ignore[attr-defined]
    assert found["cat/small"]["jpg"] == small
    assert size_of(found["cat/wide"]["png"]) == (160, 32)
    assert size_of(found["cat/grey"]["jpg"]) == (32, 64)
    with Image.open(io.BytesIO(found["cat/grey"]["jpg"])) as grey:
        assert grey.mode == "L"
    with Image.open(io.BytesIO(found["cat/turned"]["jpg"])) as turned:
        assert dict(turned.getexif()) == {0x0112: 6}
    assert size_of(found["dog/00"]["jpg"]) == (43, 32)
    assert meta.bytes < sum(len(path.read_bytes()) for path in images.glob("*/*")) / 2


@pytest.mark.parametrize("jobs", [1, 2, 5])
def test_threads_keep_the_order(images: Path, tmp_path: Path, jobs: int) -> None:
    pack(images, tmp_path / "packed", resize=40, jobs=jobs)
    pack(images, tmp_path / "again", resize=40, jobs=3)
    assert contents(tmp_path / "packed") == contents(tmp_path / "again")
    assert list(in_order(lambda i: i * i, range(0, 50, 7), jobs)) == [
        i * i for i in range(0, 50, 7)
    ]


@pytest.mark.parametrize(("free", "jobs"), [(1, 1), (2**40, usable_cores())])
def test_large_samples_are_made_by_fewer_threads(
    images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, jobs: int
) -> None:
    given, write = list[Any](), packing.write

    def noted(*args: Any) -> None:
        given.append(args)
        write(*args)

    monkeypatch.setattr(pack_module, "write", noted)
    monkeypatch.setattr(pack_module, "free_memory", lambda: free)
    pack(images, tmp_path / "packed")
    assert given[0][4] == jobs


def test_a_forecast_comes_first(images: Path, tmp_path: Path) -> None:
    told: list[Forecast] = []
    meta = pack(images, tmp_path / "packed", begin=told.append)
    (forecast,) = told
    assert (forecast.kind, forecast.count) == ("records", 40)
    assert forecast.bytes == pytest.approx(meta.bytes, rel=0.05)
    assert meta.fields == ("__key__", "jpg", "cls")
    assert meta.classes == ("cat", "dog")


def test_a_disk_that_is_too_small(
    images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(10**12, 10**12, 1000))
    with pytest.raises(DataError, match=r"about 0 MiB are needed, 0 MiB are free"):
        pack(images, tmp_path / "packed")
    assert os.listdir(tmp_path) == ["data"]


CHILD = """
import os, sys
from outpace.serve import pack, packing

packing.EVERY_S = 0
pack.CHUNK_MOST = 7
real, appended = pack._writer, 0

def writer(*args):
    found = real(*args)
    append = found.append
    def count(made):
        global appended
        append(made)
        appended += 1
        if appended == int(sys.argv[3]):
            os.kill(os.getpid(), 9)
    found.append = count
    return found

pack._writer = writer
resize = int(sys.argv[4]) or None
pack.pack(sys.argv[1], sys.argv[2], resize=resize, jobs=2)
"""


def killed(source: str, dest: Path, after: int, resize: int | None) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CHILD, source, str(dest), str(after), str(resize or 0)],
        cwd=dest.parent,
        capture_output=True,
        text=True,
    )
    assert done.returncode == -9, done.stderr


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param("files", marks=pytest.mark.slow),
        "resized",
        "tars",
        pytest.param("arrays", marks=pytest.mark.slow),
        "uneven",
    ],
)
def test_what_is_killed_goes_on_to_the_same_bytes(
    images: Path, tmp_path: Path, module: str, kind: str
) -> None:
    source, resize, after = str(images), None, 25
    if kind == "resized":
        resize = 32
    elif kind == "tars":
        source = str(tar(tmp_path / "a.tar", {f"{i:02}.jpg": b"x" * i for i in range(40)}))
    elif kind == "arrays":
        source, after = f"{module}:Even", 125
    elif kind == "uneven":
        source, after = f"{module}:Uneven", 190 + 133
    dest = tmp_path / "packed"
    killed(source, dest, after, resize)
    assert not dest.exists()
    assert left_over(tmp_path) == [".packed.partial"]
    told: list[Forecast] = []
    pack(source, dest, resize=resize, begin=told.append)
    total = len(open_source(dest))
    assert told[0].note.startswith("goes on after ")
    assert 10 <= int(told[0].note.split()[3]) < total
    assert left_over(tmp_path) == []
    pack(source, tmp_path / "whole", resize=resize)
    assert contents(dest) == contents(tmp_path / "whole")
    assert verify(dest, lambda phase, done, total: None).right


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda images: (images / "dog/00.jpg").write_bytes(b"other"), "the source has changed"),
        pytest.param(
            lambda images: (images / "dog/new.jpg").write_bytes(b"new"),
            "the source has changed",
            marks=pytest.mark.slow,
        ),
        (None, "it had other options"),
    ],
)
def test_another_source_or_other_options_begin_anew(
    images: Path, tmp_path: Path, change: Callable[[Path], Any] | None, why: str
) -> None:
    killed(str(images), tmp_path / "packed", 25, None)
    if change is not None:
        change(images)
    told: list[Forecast] = []
    pack(images, tmp_path / "packed", resize=None if change else 32, begin=told.append)
    assert told[0].note == f"an earlier attempt is thrown away: {why}" + (" since" * bool(change))
    assert len(open_source(tmp_path / "packed")) == len(list(images.glob("*/*")))


def test_a_table_that_was_killed_begins_anew(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("x\n1\n2\n")
    left = tmp_path / ".packed.partial"
    left.mkdir()
    for name in ("lock", "table.arrow"):  # as what is killed leaves them
        (left / name).touch()
    told: list[Forecast] = []
    pack(tmp_path / "t.csv", tmp_path / "packed", begin=told.append)
    assert told[0].note == "an earlier attempt is thrown away: a table always begins anew"
    pack(tmp_path / "t.csv", tmp_path / "packed", force=True, begin=told.append)
    assert told[1].note == ""


def full(number: int) -> Callable[..., None]:
    def fail(self: RecordsWriter, *args: Any) -> None:
        raise OSError(number, os.strerror(number))

    return fail


@pytest.mark.parametrize("method", ["append", "sync", "finish"])
def test_a_disk_that_fills(
    images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    monkeypatch.setattr(RecordsWriter, method, full(errno.ENOSPC))
    with pytest.raises(DataError, match=r"\.packed\.partial: the disk is full"):
        pack(images, tmp_path / "packed")
    assert os.listdir(tmp_path) == ["data"]


FILLED = """
import sys
from outpace.errors import DataError
from outpace.serve import pack
pack._check_room = lambda *told: None  # others fill the disk after that
try:
    pack.pack(sys.argv[1], sys.argv[2] + "/packed")
except DataError as error:
    print(error.message)
"""


@pytest.mark.parametrize(
    "kind",
    [
        "records",
        pytest.param("arrays", marks=pytest.mark.slow),
        "table",
        pytest.param("tars", marks=pytest.mark.slow),
    ],
)
def test_a_disk_that_is_full(tmp_path: Path, module: str, kind: str) -> None:
    """A file system's own refusal, of any kind of store."""
    if not shutil.which("unshare") or subprocess.run(["unshare", "-rm", "true"]).returncode:
        pytest.skip("no mount namespace can be made here")
    if kind == "records":
        source = tmp_path / "data"
        source.mkdir()
        (source / "large.bin").write_bytes(bytes(1 << 20))
    elif kind == "table":
        source = tmp_path / "t.csv"
        source.write_text("x\n" + "1\n" * 50_000)
    else:
        source = tar(tmp_path / "a.tar", {f"{i:05}.txt": b"x" for i in range(2_000)})
    (tmp_path / "disk").mkdir()
    command = 'mount -t tmpfs -o size=32k tmpfs disk && "$0" -c "$1" "$2" disk; ls -A disk'
    what = f"{module}:Even" if kind == "arrays" else str(source)
    found = subprocess.run(
        ["unshare", "-rm", "sh", "-c", command, sys.executable, FILLED, what],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert found.stdout.strip().endswith("disk/.packed.partial: the disk is full"), found


def test_a_disk_that_fills_later_keeps_what_is_done(
    images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packing, "EVERY_S", 0)
    with monkeypatch.context() as at_end:
        at_end.setattr(RecordsWriter, "finish", full(errno.ENOSPC))
        with pytest.raises(DataError, match="the disk is full") as told:
            pack(images, tmp_path / "packed")
    assert "the same command goes on" in str(told.value.hint)
    assert not (tmp_path / "packed").exists()
    begun: list[Forecast] = []
    pack(images, tmp_path / "packed", begin=begun.append)
    assert begun[0].note == "goes on after 40 of 40"


def test_what_fails_later_tells_that_what_is_done_is_kept(
    images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packing, "EVERY_S", 0)
    monkeypatch.setattr("outpace.serve.pack.CHUNK_MOST", 5)
    damage(images / "dog/38.jpg")
    with pytest.raises(DataError, match=r"dog/38\.jpg") as told:
        pack(images, tmp_path / "packed", resize=32, jobs=1)
    assert told.value.hint == (
        "--on-error skip leaves such files out; "
        f"{tmp_path}/.packed.partial stays: the same command goes on from there"
    )
    begun: list[Forecast] = []
    meta = pack(images, tmp_path / "packed", resize=32, skip=True, begin=begun.append)
    assert begun[0].note == "goes on after 35 of 40"
    assert meta.count == 39


def test_a_limit_of_file_sizes(images: Path, tmp_path: Path) -> None:
    """A file system's own refusal, not one made up."""
    child = """
        import resource, sys
        from outpace.serve.pack import pack
        from outpace.errors import DataError
        resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, 30_000))
        try:
            pack(sys.argv[1], sys.argv[2])
        except DataError as error:
            print(error.message)
    """
    command = [sys.executable, "-c", textwrap.dedent(child), str(images), str(tmp_path / "packed")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert "cannot be written: File too large" in done.stdout, done.stderr
    assert os.listdir(tmp_path) == ["data"]


def damage(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:1000])


FAULTS: dict[str, tuple[Callable[[Path], Any], str]] = {
    "truncated": (damage, "truncated"),
    "no image": (lambda path: path.write_bytes(b"<html>"), "not an image that Pillow knows"),
    "empty": (lambda path: path.write_bytes(b""), "not an image that Pillow knows"),
    "no suffix of one": (lambda path: path.rename(path.with_suffix(".txt")), "not an image"),
    "dangling link": (
        lambda path: (path.unlink(), path.symlink_to("nowhere")),
        "No such file or directory",
    ),
    "16 bits": (
        lambda path: Image.fromarray(np.zeros((50, 50), np.uint16)).save(path, "JPEG2000"),
        "pixels of mode I;16 do not fit into a JPEG",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_file_that_cannot_be_resized(images: Path, tmp_path: Path, fault: str) -> None:
    change, reason = FAULTS[fault]
    change(images / "dog/06.jpg")
    with pytest.raises(DataError, match=rf"data/dog/06\.(jpg|txt): .*{reason}"):
        pack(images, tmp_path / "packed", resize=32)
    assert os.listdir(tmp_path) == ["data"]
    meta = pack(images, tmp_path / "packed", resize=32, skip=True)
    assert meta.count == 39 == len(open_source(tmp_path / "packed"))
    (skipped,) = meta.skipped
    assert skipped.path == str(next(images.glob("dog/06.*"), images / "dog/06.jpg"))
    assert reason in skipped.reason
    assert verify(tmp_path / "packed", lambda phase, done, total: None).right


def test_skipped_ones_are_not_forgotten_when_it_goes_on(images: Path, tmp_path: Path) -> None:
    damage(images / "cat/03.jpg")
    killed_at = tmp_path / "packed"
    done = subprocess.run(
        [sys.executable, "-c", CHILD.replace("jobs=2", "jobs=2, skip=True"), str(images),
         str(killed_at), "30", "32"],
        capture_output=True,
    )  # fmt: skip
    assert done.returncode == -9
    told: list[Forecast] = []
    meta = pack(images, killed_at, resize=32, skip=True, begin=told.append)
    assert told[0].note.startswith("goes on")
    assert [one.path for one in meta.skipped] == [str(images / "cat/03.jpg")]
    assert len(open_source(killed_at)) == meta.count == 39


def test_nothing_can_be_read(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/1.jpg").write_bytes(b"")
    with pytest.raises(DataError, match="none of its samples"):
        pack(tmp_path / "data", tmp_path / "packed", resize=32, skip=True)
    assert os.listdir(tmp_path) == ["data"]


def deny(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """As of a file of somebody else; root is denied nothing."""
    real = open

    def denying(path: Any, *args: Any, **how: Any) -> Any:
        if str(path).endswith(name):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return real(path, *args, **how)

    monkeypatch.setattr("builtins.open", denying)


def test_permission_denied(images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deny(monkeypatch, "cat/05.jpg")
    with pytest.raises(DataError, match=r"cat/05\.jpg: Permission denied") as error:
        pack(images, tmp_path / "packed")
    assert error.value.hint == "--on-error skip leaves it out"
    meta = pack(images, tmp_path / "packed", skip=True)
    assert [(one.path, one.reason) for one in meta.skipped] == [
        (str(images / "cat/05.jpg"), "Permission denied")
    ]


def test_a_folder_that_cannot_be_listed(
    images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.scandir

    def denying(path: Any) -> Any:
        if str(path).endswith("cat"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return real(path)

    monkeypatch.setattr(os, "scandir", denying)
    with pytest.raises(DataError, match=r"data/cat: Permission denied"):
        pack(images, tmp_path / "packed")
    meta = pack(images, tmp_path / "packed", skip=True)
    assert (meta.count, [one.path for one in meta.skipped]) == (20, [str(images / "cat")])


def test_what_is_in_the_way(images: Path, tmp_path: Path) -> None:
    dest = tmp_path / "packed"
    dest.mkdir()
    (dest / "thesis.txt").write_text("do not lose")
    for force in (False, True):
        with pytest.raises(UsageError, match="outpace did not pack it"):
            pack(images, dest, force=force)
    assert (dest / "thesis.txt").exists()
    shutil.rmtree(dest)
    pack(images, dest)
    with pytest.raises(UsageError, match="is there already"):
        pack(images, dest)
    assert pack(images, dest, resize=32, force=True).grade == "learning"
    assert sorted(os.listdir(tmp_path)) == ["data", "packed"]
    (tmp_path / ".other.partial").mkdir()
    (tmp_path / ".other.partial/mine").touch()
    with pytest.raises(DataError, match="is in the way"):
        pack(images, tmp_path / "other")
    assert (tmp_path / ".other.partial/mine").exists()


def moved_inside(folder: Path, name: str) -> Path:
    """A source that was moved into what was packed of it."""
    source = folder / name
    if name == "0.tar":
        tar(source, {"1.cls": b"3"})
    else:
        source.write_text("x\n3\n")
    pack([source], folder / "packed")
    return source.rename(folder / "packed" / name)


@pytest.mark.parametrize("name", ["0.tar", "t.csv"])
def test_a_source_that_lies_in_what_it_would_replace_is_not_lost(tmp_path: Path, name: str) -> None:
    moved = moved_inside(tmp_path, name)
    with pytest.raises(UsageError, match="lies inside of"):
        pack([moved], tmp_path / "packed", force=True)
    assert moved.exists()


@pytest.mark.parametrize("name", ["0.tar", "t.csv"])
def test_a_source_that_is_a_link_into_what_it_would_replace_is_not_lost(
    tmp_path: Path, name: str
) -> None:
    moved = moved_inside(tmp_path, name)
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / name).symlink_to(moved)
    with pytest.raises(UsageError, match="lies inside of"):
        pack(tmp_path / "linked", tmp_path / "packed", force=True)
    assert moved.exists()


def test_keys_that_are_no_texts_come_back(module: str, tmp_path: Path) -> None:
    meta = pack(f"{module}:Numbered", tmp_path / "packed")
    assert meta.fields == ("0", "1")
    assert open_source(tmp_path / "packed")[7] == {0: "a text", 1: 7}


def test_arrays_that_turn_out_uneven_make_room_for_the_records(
    module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that was removed takes its room as long as it is open."""
    held: list[int] = []
    clear = pack_module.clear

    def cleared(folder: Path) -> None:
        clear(folder)
        links = [os.path.realpath(f"/proc/self/fd/{each}") for each in os.listdir("/proc/self/fd")]
        held.append(sum(link.startswith(str(folder)) and "deleted" in link for link in links))

    monkeypatch.setattr(pack_module, "clear", cleared)
    assert pack(f"{module}:Uneven", tmp_path / "packed").kind == "records"
    assert held
    assert not any(held)


def test_rubble_of_an_old_pack_does_not_take_its_name(images: Path, tmp_path: Path) -> None:
    (tmp_path / ".packed.old").mkdir()
    (tmp_path / ".packed.old/records").write_bytes(b"what is left")
    (tmp_path / "empty").mkdir()
    with pytest.raises(OutpaceError):
        pack(tmp_path / "empty", tmp_path / "packed")
    assert not (tmp_path / "packed").exists()
    assert pack(images, tmp_path / "packed").count


def test_what_tells_of_the_others_goes_first(
    images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that is killed meanwhile leaves no journal of what is not there."""
    gone, unlink = list[str](), Path.unlink

    def noted(path: Path, missing_ok: bool = False) -> None:
        gone.append(path.name)
        unlink(path, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "unlink", noted)
    pack(images, tmp_path / "packed")
    assert [name for name in gone if name in (JOURNAL, INDEX, LOCK)] == [JOURNAL, INDEX, LOCK]
    assert LOCK not in contents(tmp_path / "packed")


def test_what_a_link_leads_to_is_replaced(images: Path, tmp_path: Path) -> None:
    (tmp_path / "large").mkdir()
    pack(images, tmp_path / "large/packed")
    (tmp_path / "packed").symlink_to(tmp_path / "large/packed")
    for side in (32, 16):
        pack(images, tmp_path / "packed", resize=side, force=True)
        assert (tmp_path / "packed").is_symlink()
        packed = open_source(tmp_path / "large/packed")
        assert min(size_of(packed[0]["jpg"])) == side
    assert os.listdir(tmp_path / "large") == ["packed"]
    assert left_over(tmp_path) == []
    shutil.rmtree(tmp_path / "large/packed")
    pack(images, tmp_path / "packed")
    assert len(open_source(tmp_path / "large/packed")) == 40


def test_a_failure_leaves_what_was_there(images: Path, tmp_path: Path) -> None:
    pack(images, tmp_path / "packed")
    before = contents(tmp_path / "packed")
    damage(images / "cat/01.jpg")
    with pytest.raises(DataError):
        pack(images, tmp_path / "packed", resize=32, force=True)
    assert contents(tmp_path / "packed") == before
    assert left_over(tmp_path) == []


def test_one_that_cannot_take_its_place_leaves_what_was_there(
    images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pack(images, tmp_path / "packed")
    before, rename = contents(tmp_path / "packed"), Path.rename

    def failing(path: Path, target: Path) -> Path:
        if path.name == ".packed.partial":
            raise OSError(errno.EACCES, os.strerror(errno.EACCES), path)
        return rename(path, target)

    monkeypatch.setattr(packing, "EVERY_S", 0)
    monkeypatch.setattr(Path, "rename", failing)
    with pytest.raises(DataError, match="cannot be written: Permission denied"):
        pack(images, tmp_path / "packed", resize=32, force=True)
    assert contents(tmp_path / "packed") == before
    monkeypatch.undo()
    begun: list[Forecast] = []
    pack(images, tmp_path / "packed", resize=32, force=True, begin=begun.append)
    assert begun[0].note == "goes on after 40 of 40"
    assert pack(images, tmp_path / "again", resize=32).bytes
    assert contents(tmp_path / "packed") == contents(tmp_path / "again")


def test_what_came_to_be_there_meanwhile_is_not_lost(
    images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packing, "EVERY_S", 0)
    dest = tmp_path / "packed"

    def made(*_: Any) -> None:
        dest.mkdir(exist_ok=True)
        (dest / "results").write_text("of an hour")

    with pytest.raises(DataError, match="is there by now, and outpace did not pack it") as told:
        pack(images, dest, progress=made)
    assert "the same command goes on" in str(told.value.hint)
    assert (dest / "results").read_text() == "of an hour"
    shutil.rmtree(dest)
    assert pack(images, dest).count == 40
    assert left_over(tmp_path) == []


def test_one_that_was_killed_between_two_names_leaves_what_was_there(
    images: Path, tmp_path: Path
) -> None:
    pack(images, tmp_path / "packed")
    before = contents(tmp_path / "packed")
    (tmp_path / "packed").rename(tmp_path / ".packed.old")
    damage(images / "cat/01.jpg")
    with pytest.raises(DataError):
        pack(images, tmp_path / "packed", resize=32)
    assert contents(tmp_path / "packed") == before
    assert left_over(tmp_path) == []


def test_two_at_once(images: Path, tmp_path: Path) -> None:
    with (
        partial(tmp_path / "packed"),
        pytest.raises(DataError, match="by another process"),
    ):
        pack(images, tmp_path / "packed")


@pytest.mark.parametrize(
    ("source", "dest", "how", "message"),
    [
        ("data", "data/packed", {}, "lies inside of"),
        ("data", "nowhere/packed", {}, "there is no folder"),
        ("data", "packed", {"wanted": "index"}, "index is for tars"),
        ("data", "packed", {"wanted": "table"}, "table is for tables"),
        ("texts", "packed", {"wanted": "arrays"}, "texts/1.txt: not an image"),
        ("data", "packed", {"wanted": "index", "resize": 8}, "--resize is for encoded images"),
        ("t.csv", "packed", {"resize": 8}, "has no images"),
        ("done", "packed", {}, "packed already"),
        ("nowhere", "packed", {}, "there is no nowhere"),
    ],
)
def test_what_cannot_be_done(
    images: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    source: str,
    dest: str,
    how: dict[str, Any],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_text("a\n1\n")
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts/1.txt").write_text("no image")
    if source == "done":
        pack("data", "done")
    with pytest.raises(OutpaceError, match=message):
        pack(source, dest, **how)
    assert not Path(dest).exists()
    assert left_over(tmp_path) == []


def test_a_data_set_of_the_users(module: str, tmp_path: Path) -> None:
    meta = pack(f"{module}:Even", "even")
    assert (meta.kind, meta.count, meta.fields) == ("arrays", 200, ("0", "1"))
    found: Any = open_source("even")
    assert found[7][1] == 7
    assert found[7][0].tolist() == [7] * 50
    assert pack(f"{module}:Text", "text").kind == "records"
    assert open_source("text")[9] == {"text": "number 9"}
    assert pack(f"{module}:Even", "records", "records").kind == "records"
    assert verify("even", lambda phase, done, total: None).source == "code"


def test_a_data_set_whose_code_ends_the_program(module: str) -> None:
    with pytest.raises(DataError, match="ended the program, with exit code 3"):
        pack(f"{module}:ends", "packed")


def test_a_sample_of_another_shape_makes_them_records(module: str) -> None:
    told: list[Forecast] = []
    meta = pack(f"{module}:Uneven", "packed", begin=told.append)
    assert [forecast.kind for forecast in told] == ["arrays", "records"]
    assert "Uneven, sample 133: 0: array of float64, 5" in told[1].reason
    assert (meta.kind, meta.count, meta.skipped) == ("records", 200, ())
    assert open_source("packed")[133][0].shape == (5,)
    with pytest.raises(DataError, match="sample 133") as error:
        pack(f"{module}:Uneven", "other", "arrays")
    assert "--as records" in str(error.value.hint)
    assert pack(f"{module}:Uneven", "other", "arrays", skip=True).count == 199
    assert [open_source("other")[i][1] for i in (132, 133)] == [132, 134]


def test_the_shape_of_arrays_is_that_of_most(module: str) -> None:
    meta = pack(f"{module}:UnevenFirst", "packed", "arrays", skip=True)
    assert (meta.count, [each.path for each in meta.skipped]) == (
        199,
        [f"{module}:UnevenFirst, sample 0"],
    )
    with pytest.raises(DataError, match="AllBroken: none of its samples can be read"):
        pack(f"{module}:AllBroken", "other", "arrays")


def test_a_sample_that_is_no_numbers_makes_them_records(module: str) -> None:
    meta = pack(f"{module}:Unlabelled", "packed", skip=True)
    assert (meta.kind, meta.count, meta.skipped) == ("records", 200, ())
    assert open_source("packed")[133][1] is None
    with pytest.raises(DataError, match="sample 133: cannot be packed") as told:
        pack(f"{module}:Unlabelled", "other", "arrays")
    assert "--as records" in str(told.value.hint)
    assert pack(f"{module}:Unlabelled", "other", "arrays", skip=True).count == 199


def test_a_file_for_each_of_many_numbers_is_not_made(module: str) -> None:
    """All of them would be open at once."""
    told: list[Forecast] = []
    assert pack(f"{module}:Wide", "packed", begin=told.append).kind == "records"
    assert told[0].reason == "samples have 81 numbers and arrays, each a file of its own"
    assert open_source("packed")[7] == {"ids": [7] * 80, "label": 7}
    with pytest.raises(DataError, match="81 numbers and arrays") as error:
        pack(f"{module}:Wide", "other", "arrays")
    assert "--as records" in str(error.value.hint)


def test_random_samples_are_refused(module: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"samples are random \(drawn by python") as told:
        pack(f"{module}:Random", "packed")
    assert "augmentation" in str(told.value.hint)
    assert left_over(tmp_path) == []


def test_a_sample_that_cannot_be_made(module: str) -> None:
    with pytest.raises(DataError, match=r"Broken, sample 150: ValueError: no such row"):
        pack(f"{module}:Broken", "packed")
    meta = pack(f"{module}:Broken", "packed", skip=True)
    assert (meta.kind, meta.count) == ("arrays", 199)
    assert meta.skipped[0].reason == "ValueError: no such row"
    with pytest.raises(DataError, match="no samples"):
        pack(f"{module}:Nothing", "none")


def test_a_pack_knows_its_source(images: Path, tmp_path: Path) -> None:
    def verified() -> Any:
        return verify(tmp_path / "packed", lambda phase, done, total: None)

    pack(images, tmp_path / "packed")
    assert (verified().source, verified().right) == ("same", True)
    (images / "cat/new.jpg").write_bytes(b"")
    os.utime(images / "dog/02.jpg", ns=(5, 5))
    (images / "dog/04.jpg").unlink()
    assert verified().changed == ("dog/02.jpg", "dog/04.jpg", "cat/new.jpg")
    assert not verified().right
    shutil.rmtree(images)
    assert (verified().source, verified().right) == ("gone", True)
    flip(tmp_path / "packed/records.bin", 100)
    assert verified().damaged == ("record 0",)
    with pytest.raises(DataError, match="is not what outpace packed"):
        verify(tmp_path, lambda phase, done, total: None)


def test_several_tars_are_compared_with_themselves_only(tmp_path: Path) -> None:
    for name in "abc":
        tar(tmp_path / f"{name}.tar", {"1.jpg": b"x", "2.jpg": b"y"})
    pack([tmp_path / "a.tar", tmp_path / "b.tar"], tmp_path / "index")
    found = verify(tmp_path / "index", lambda phase, done, total: None)
    assert (found.source, found.meta.count) == ("same", 4)
    os.utime(tmp_path / "b.tar", ns=(5, 5))
    found = verify(tmp_path / "index", lambda phase, done, total: None)
    assert found.changed == ("b.tar",)


def test_tars_that_were_moved(tmp_path: Path) -> None:
    (tmp_path / "shards").mkdir()
    shards = [tar(tmp_path / f"shards/{n}.tar", {f"{n}.jpg": b"x"}) for n in "abc"]
    pack(tmp_path / "shards", tmp_path / "index")

    def verified() -> Any:
        found = verify(tmp_path / "index", lambda phase, done, total: None)
        assert not found.right
        return found

    shards[1].rename(tmp_path / "b.tar")
    found = verified()
    assert (found.missing, found.damaged, found.changed) == ((str(shards[1]),), (), ())
    (tmp_path / "shards").rename(tmp_path / "elsewhere")
    found = verified()
    assert (found.missing, found.damaged) == (tuple(map(str, shards)), ())
    assert found.source == "gone"


def test_what_lies_beside_shards_is_no_change_of_them(tmp_path: Path) -> None:
    (tmp_path / "shards").mkdir()
    tar(tmp_path / "shards/a.tar", {"1.jpg": b"x"})
    (tmp_path / "shards/sizes.json").write_text("{}")
    assert pack(tmp_path / "shards", tmp_path / "index").kind == "tars"
    (tmp_path / "shards/README.md").write_text("shards")
    assert verify(tmp_path / "index", lambda phase, done, total: None).source == "same"
    tar(tmp_path / "shards/b.tar", {"2.jpg": b"x"})
    found = verify(tmp_path / "index", lambda phase, done, total: None)
    assert found.changed == ("b.tar",)


def test_names_that_are_not_utf8(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    path = os.fsencode(tmp_path / "data") + b"/t\xe9.jpg"
    with open(path, "wb") as file:
        file.write(b"tea")
    (tmp_path / "data/z.jpg").write_bytes(b"z")
    pack(tmp_path / "data", tmp_path / "packed")
    found: Any = open_source(tmp_path / "packed")
    assert list(found) == list(open_source(tmp_path / "data"))  # type: ignore[call-overload]
    assert os.fsencode(found[0]["__key__"]) == b"t\xe9"
    assert verify(tmp_path / "packed", lambda phase, done, total: None).source == "same"
    os.unlink(path)
    os.symlink("nowhere", path)
    assert len(pack(tmp_path / "data", tmp_path / "skipped", skip=True).skipped) == 1


def test_an_index_leaves_nothing_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(self: Tars, index: int) -> list[int]:
        raise DataError("Input/output error")

    source = tar(tmp_path / "a.tar", {"1.jpg": b"x"})
    monkeypatch.setattr(Tars, "checksums", failing)
    with pytest.raises(DataError, match=r"a\.tar: 1: Input/output error"):
        pack(source, tmp_path / "index", skip=True)


def test_tars_as_records(tmp_path: Path) -> None:
    members = {f"{name}/{i}.jpg": picture(40, 40) for name in ("cat", "dog") for i in range(3)}
    source = tar(tmp_path / "a.tar", members)
    meta = pack(source, tmp_path / "packed", resize=16)
    assert (meta.kind, meta.classes) == ("records", ("cat", "dog"))
    assert size_of(Records(tmp_path / "packed")[4]["jpg"]) == (16, 16)
    assert Records(tmp_path / "packed")[4]["cls"] == 1
