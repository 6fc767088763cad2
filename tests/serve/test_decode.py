"""Kept images: shared by all that draw them, and never changed by any of them."""

from __future__ import annotations

import errno
import io
import itertools
import multiprocessing
import operator
import os
import pickle
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageOps
from torch.utils.data import DataLoader, Dataset

from outpace.seams.decode import DecodeSeam
from outpace.seams.host import Host
from outpace.seams.setup import AS_IS
from outpace.serve.decode import KEPT, Decoder
from tests.remedies.trainings import hosted

CHANGES: dict[str, Callable[[Image.Image], object]] = {
    "paste": lambda image: image.paste((1, 2, 3), (0, 0, 20, 20)),
    "putpixel": lambda image: image.putpixel((3, 3), (9, 9, 9)),
    "putdata": lambda image: image.putdata([(5, 5, 5)] * (image.width * image.height)),
    "putalpha": lambda image: image.putalpha(7),
    "draw": lambda image: ImageDraw.Draw(image).rectangle((0, 0, 30, 30), fill=(0, 255, 0)),
    "thumbnail": lambda image: image.thumbnail((8, 8)),
    "pixel access": lambda image: image.load().__setitem__((0, 0), (4, 4, 4)),
    "frombytes": lambda image: image.frombytes(bytes(image.width * image.height * 3)),
}


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    pixels = np.random.default_rng(0).integers(0, 255, size=(40, 50, 3), dtype=np.uint8)
    path = tmp_path / "picture.jpg"
    Image.fromarray(pixels).save(path, quality=90)
    return path


@pytest.fixture
def keeping(picture: Path) -> Iterator[None]:
    """Decoded images are kept, the picture already is."""
    with hosted(replace(AS_IS, decoded_bytes=1 << 24)) as host:
        for _ in range(2):
            Image.open(picture).load()
        yield
        assert not host.broken


def by_hand(path: Path) -> bytes:
    with Image.open(path) as image:
        return image.tobytes()


@pytest.mark.parametrize("change", CHANGES)
def test_changing_a_copy_changes_nothing_else(change: str, picture: Path, keeping: None) -> None:
    wanted = by_hand(picture)
    drawn = Image.open(picture).convert("RGB")
    again = drawn.copy()
    CHANGES[change](drawn)
    assert again.tobytes() == wanted
    assert by_hand(picture) == wanted


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_copy_is_as_pillow_makes_it(change: str, picture: Path) -> None:
    plain = Image.open(picture).convert("RGB")
    CHANGES[change](plain)
    with hosted(replace(AS_IS, decoded_bytes=1 << 24)):
        for _ in range(2):
            Image.open(picture).load()
        drawn = Image.open(picture).convert("RGB")
        CHANGES[change](drawn)
    assert drawn.tobytes() == plain.tobytes()
    assert (type(drawn), drawn.mode, drawn.size) == (type(plain), plain.mode, plain.size)


def loaded(image: Image.Image) -> None:
    image.load()
    image.draft("RGB", (12, 10))


def closed(image: Image.Image) -> None:
    with image:
        image.draft("RGB", (12, 10))
        image.load()


DRAFTS: dict[str, Callable[[Image.Image], object]] = {
    "thumbnail": lambda image: image.thumbnail((8, 8)),
    "larger thumbnail": lambda image: image.thumbnail((60, 60)),
    "smaller": lambda image: image.draft("RGB", (12, 10)),
    "grey": lambda image: image.draft("L", (50, 40)),
    "twice": lambda image: [image.draft("L", (25, 20)) for _ in range(2)],
    "loaded before": loaded,
    "copied before": lambda image: [image.copy(), image.draft("RGB", (12, 10))],
    "closed after": closed,
}


@pytest.mark.parametrize("draft", DRAFTS)
def test_a_kept_image_is_drafted_as_from_its_file(draft: str, picture: Path) -> None:
    whole, plain = by_hand(picture), Image.open(picture)
    DRAFTS[draft](plain)
    with hosted(replace(AS_IS, decoded_bytes=1 << 24)) as host:
        for _ in range(2):
            Image.open(picture).load()
        for _ in range(2):
            drawn = Image.open(picture)
            drawn.info["seen"] = True
            DRAFTS[draft](drawn)
            assert drawn.tobytes() == plain.tobytes()
            assert (drawn.mode, drawn.size) == (plain.mode, plain.size)
            assert drawn.info["seen"]
        assert by_hand(picture) == whole
        assert not host.broken


def after(change: Callable[[Image.Image], object]) -> Callable[[Path], object]:
    def verify(path: Path) -> object:
        with Image.open(path) as image:
            change(image)
            image.verify()
            return image.fp

    return verify


VERIFIED: dict[str, Callable[[Path], object]] = {
    "opened": after(lambda image: None),
    "loaded": after(lambda image: image.load()),
    "verified": after(lambda image: image.verify()),
    "drafted": after(lambda image: image.draft("RGB", (12, 10))),
}


def told_by(action: Callable[[Path], object], path: Path) -> tuple[object, str]:
    try:
        return action(path), ""
    except Exception as error:
        return type(error), str(error)


@pytest.mark.parametrize("suffix", [".jpg", ".png", ".bmp"])
@pytest.mark.parametrize("how", VERIFIED)
def test_a_kept_image_is_verified_as_its_file_is(how: str, suffix: str, picture: Path) -> None:
    path = picture.with_suffix(suffix)
    if suffix != ".jpg":
        Image.open(picture).save(path)
    plain, pixels = told_by(VERIFIED[how], path), by_hand(path)
    with hosted(replace(AS_IS, decoded_bytes=1 << 24)) as host:
        for _ in range(3):
            assert told_by(VERIFIED[how], path) == plain
            assert by_hand(path) == pixels
        assert hasattr(Image.open(path), KEPT)
        assert not host.broken


def test_a_file_that_is_damaged_since_it_was_kept_is_found_so(picture: Path) -> None:
    path = picture.with_suffix(".png")
    Image.open(picture).save(path)
    with hosted(replace(AS_IS, decoded_bytes=1 << 24)) as host:
        by_hand(path)
        times, data = path.stat(), bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
        with pytest.raises(SyntaxError, match="broken PNG file"):
            Image.open(path).verify()
        assert not host.broken


@pytest.mark.parametrize("change", CHANGES)
def test_changing_an_opened_image_changes_nothing_else(
    change: str, picture: Path, keeping: None
) -> None:
    wanted = by_hand(picture)
    opened = Image.open(picture)
    CHANGES[change](opened)
    assert by_hand(picture) == wanted


def test_copies_share_their_pixels(picture: Path, keeping: None) -> None:
    one, other = Image.open(picture).convert("RGB"), Image.open(picture).copy()
    assert one.im is other.im
    assert one.info == Image.open(picture).info
    assert one.info is not other.info


def test_a_kept_image_is_turned_upright_each_time(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (50, 40)).save(tmp_path / "turned.jpg", exif=exif)
    with hosted(replace(AS_IS, decoded_bytes=1 << 24)) as host:
        for turn in range(3):
            image = Image.open(tmp_path / "turned.jpg")
            assert hasattr(image, KEPT) == (turn > 0)
            assert image.getexif()[0x0112] == 6
            image.load()
            ImageOps.exif_transpose(image, in_place=True)
            assert image.size == (40, 50)
        assert not host.broken


def test_what_a_file_says_besides_its_pixels_takes_memory_too(tmp_path: Path) -> None:
    paths = many(tmp_path, 4)
    for path in paths:
        Image.open(path).save(path, icc_profile=bytes(10_000))
    with hosted(replace(AS_IS, decoded_bytes=40_000)) as host:
        for path in paths:
            by_hand(path)
        found = decoder_of(host)
        assert (len(found.kept), found.bytes.own) == (2, 36_000)


def test_a_kept_file_that_is_gone_is_missing(picture: Path) -> None:
    with hosted(replace(AS_IS, decoded_bytes=1 << 24)) as host:
        for _ in range(2):
            by_hand(picture)
        picture.unlink()
        with pytest.raises(FileNotFoundError):
            Image.open(picture)
        assert not host.broken


def many(folder: Path, count: int) -> list[Path]:
    """Pictures of 50 x 40, each of 8,000 bytes as Pillow has it and 6,000 on disk."""
    paths = [folder / f"{i}.jpg" for i in range(count)]
    for i, path in enumerate(paths):
        pixels = np.random.default_rng(i).integers(0, 255, size=(40, 50, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(path, quality=90)
    return paths


def decoder_of(host: Host) -> Decoder:
    seam = host.seams["decode"]
    assert isinstance(seam, DecodeSeam)
    assert isinstance(seam.decoder, Decoder)
    return seam.decoder


@pytest.mark.parametrize("decoder", ["pillow", "simplejpeg"])
def test_what_memory_does_not_hold_goes_to_disk_up_to_its_limit(
    tmp_path: Path, decoder: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded = []
    keep = Decoder.keep

    def noted(own: Decoder, image: Any, *args: Any) -> None:
        decoded.append(image.filename)
        keep(own, image, *args)

    monkeypatch.setattr(Decoder, "keep", noted)
    paths = many(tmp_path, 10)
    wanted = [by_hand(path) for path in paths]
    setup = replace(AS_IS, decoder=decoder, decoded_bytes=25_000, decoded_disk_bytes=20_000)
    with hosted(setup) as host:
        for _ in range(2):
            assert [by_hand(path) for path in paths] == wanted
        found = decoder_of(host)
        assert (len(found.kept), found.bytes.own) == (3, 24_000)
        assert (len(found.spill.places), found.spill.bytes.own) == (3, 18_000)
        assert len(decoded) == 10 + 4
        drawn = Image.open(paths[4]).convert("RGB")
        drawn.paste((1, 2, 3), (0, 0, 20, 20))
        assert by_hand(paths[4]) == wanted[4]
        assert not host.broken


def test_without_a_limit_for_the_disk_nothing_is_written(tmp_path: Path) -> None:
    paths = many(tmp_path, 4)
    with hosted(replace(AS_IS, decoded_bytes=10_000)) as host:
        for path in paths:
            by_hand(path)
        found = decoder_of(host)
        assert (len(found.kept), len(found.spill.places)) == (1, 0)


def test_a_full_disk_keeps_what_it_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = many(tmp_path, 4)
    wanted = [by_hand(path) for path in paths]
    write, calls = os.pwrite, itertools.count()

    def pwrite(*args: Any) -> int:
        if next(calls):
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(*args)

    monkeypatch.setattr(os, "pwrite", pwrite)
    with hosted(replace(AS_IS, decoded_bytes=1, decoded_disk_bytes=1 << 20)) as host:
        for _ in range(2):
            assert [by_hand(path) for path in paths] == wanted
        assert len(decoder_of(host).spill.places) == 1
        assert not host.broken


class Kept(Dataset[Any]):
    """Draws pictures, and tells what the process that does has kept by then."""

    def __init__(self, paths: list[Path], decoder: Decoder) -> None:
        self.paths, self.decoder = paths, decoder

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> Any:
        pixels = by_hand(self.paths[index])
        told = (os.getpid(), self.decoder.bytes.own, self.decoder.spill.bytes.own)
        return pixels, told


def test_workers_together_keep_no_more_than_the_limits(tmp_path: Path) -> None:
    paths = many(tmp_path, 40)
    wanted = [by_hand(path) for path in paths]
    with hosted(replace(AS_IS, decoded_bytes=80_000, decoded_disk_bytes=60_000)) as host:
        loader = DataLoader(
            Kept(paths, decoder_of(host)), batch_size=None, num_workers=4, persistent_workers=True
        )
        for _ in range(2):
            drawn = list(loader)
            assert [pixels for pixels, _ in drawn] == wanted
        kept = {pid: (memory, disk) for _, (pid, memory, disk) in drawn}
        assert len(kept) == 4
        assert 0 < sum(memory for memory, _ in kept.values()) <= 80_000
        assert 0 < sum(disk for _, disk in kept.values()) <= 60_000
        del loader


@pytest.mark.parametrize("memory", [1 << 24, 1], ids=["in memory", "on disk"])
def test_each_frame_of_a_file_has_its_own_pixels(tmp_path: Path, memory: int) -> None:
    frames = [Image.new("RGB", (50, 40), (i, i, i)) for i in range(3)]
    path = tmp_path / "frames.tiff"
    frames[0].save(path, save_all=True, append_images=frames[1:])
    with hosted(replace(AS_IS, decoded_bytes=memory, decoded_disk_bytes=1 << 24)) as host:
        for _ in range(3):
            with Image.open(path) as image:
                for i in (0, 1, 2, 1):
                    image.seek(i)
                    assert (np.asarray(image) == i).all()
        assert not host.broken


@pytest.mark.parametrize("how", ["truncated", "broken"])
def test_an_image_that_cannot_be_read_is_told_of_as_pillow_does(
    how: str, picture: Path, tmp_path: Path
) -> None:
    """Loaded a second time a broken stream gives what was read of it, without an error."""
    path = tmp_path / "bad.png"
    Image.open(picture).save(path)
    data = path.read_bytes()
    half = len(data) // 2
    changed = bytes(255 - each for each in data[half : half + 40])
    path.write_bytes(data[:half] + (changed + data[half + 40 :] if how == "broken" else b""))
    with pytest.raises(OSError, match="image") as plainly:
        Image.open(path).load()
    with hosted(replace(AS_IS, decoded_bytes=1 << 24)) as host:
        for _ in range(2):
            with pytest.raises(OSError, match=str(plainly.value)):
                Image.open(path).load()
            Image.open(picture).load()
        assert not host.broken
        assert len(decoder_of(host).kept) == 1


def test_what_a_data_set_holds_can_be_handed_to_a_process(picture: Path) -> None:
    """One that is spawned: ours in its place would be another function than the one that is held."""
    held = Image.open
    with hosted():
        list(DataLoader(Kept([picture], Decoder()), batch_size=None))
        assert pickle.loads(pickle.dumps(held)) is held


@pytest.fixture
def opencv(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """As little of it as can be timed."""
    made = ModuleType("cv2")
    made.imread = operator.length_hint  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "cv2", made)
    return made


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_opencv_is_timed_where_batches_are_made_and_workers_are_forked(
    method: str, opencv: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(multiprocessing, "get_start_method", lambda allow_none: method)
    plain = opencv.imread
    with hosted() as host:
        assert opencv.imread is plain
        list(DataLoader([0, 1]))  # type: ignore[arg-type]

        class Reads:
            imread = opencv.imread

        assert Reads().imread("abc") == 3
        seam = host.seams["decode"]
        assert isinstance(seam, DecodeSeam)
        assert seam.images == (method == "fork")
    assert opencv.imread is plain


def opened_first(path: Path) -> bytes:
    """As torchvision's ``ImageFolder`` does."""
    with path.open("rb") as file:
        return Image.open(file).convert("RGB").tobytes()


def unbuffered(path: Path) -> bytes:
    with path.open("rb", buffering=0) as file:
        return Image.open(file).convert("RGB").tobytes()


@pytest.mark.parametrize("reads", [opened_first, unbuffered])
@pytest.mark.parametrize("decoder", ["pillow", "simplejpeg"])
def test_images_of_files_that_the_script_opens_are_kept_too(
    tmp_path: Path, reads: Callable[[Path], bytes], decoder: Any
) -> None:
    paths = many(tmp_path, 3)
    wanted = [by_hand(path) for path in paths]
    with hosted(replace(AS_IS, decoder=decoder, decoded_bytes=1 << 24)) as host:
        for _ in range(3):
            assert [reads(path) for path in paths] == wanted
        assert len(decoder_of(host).kept) == 3
        paths[0].write_bytes(paths[1].read_bytes())
        assert reads(paths[0]) == wanted[1]
        assert not host.broken


class Part(io.RawIOBase):
    """A file within a file, which has the number of that."""

    def __init__(self, file: Any, start: int, end: int) -> None:
        file.seek(start)
        self.file, self.inner = file, io.BytesIO(file.read(end - start))

    def fileno(self) -> int:
        return int(self.file.fileno())

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self.inner.readinto(buffer)

    def seek(self, *args: int) -> int:
        return self.inner.seek(*args)


@pytest.mark.parametrize("within", [lambda part: part, io.BufferedReader])
def test_images_within_one_file_are_not_taken_for_each_other(
    tmp_path: Path, within: Callable[[Part], Any]
) -> None:
    one, other = many(tmp_path, 2)
    size = one.stat().st_size
    (tmp_path / "both").write_bytes(one.read_bytes() + other.read_bytes())
    with hosted(replace(AS_IS, decoded_bytes=1 << 24)), (tmp_path / "both").open("rb") as file:
        for _ in range(2):
            first, second = Part(file, 0, size), Part(file, size, 10 * size)
            assert Image.open(within(first)).tobytes() == by_hand(one)
            assert Image.open(within(second)).tobytes() == by_hand(other)


def test_a_file_that_pillow_maps_does_not_stay_open(tmp_path: Path) -> None:
    """Each would hold a number of a file, of which a process has a thousand or so."""
    paths = [tmp_path / f"{i}.bmp" for i in range(40)]
    for i, path in enumerate(paths):
        Image.new("L", (16, 16), i).save(path)
    with hosted(replace(AS_IS, decoded_bytes=1 << 24)) as host:
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(2):
            assert [by_hand(path)[0] for path in paths] == list(range(40))
        assert len(os.listdir("/proc/self/fd")) < before + 20
        assert not host.broken
