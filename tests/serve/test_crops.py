from __future__ import annotations

import io
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from outpace.measure.generators import random_states
from outpace.seams.generators import moved
from outpace.serve import crops
from outpace.serve.crops import RandomCrop, weighed
from outpace.serve.files import Files
from outpace.serve.images import Box, decode, decode_box, grade, random_box, resized_crop
from outpace.serve.loader import Loader
from outpace.serve.making import BatchMaker
from outpace.serve.order import generator
from tests.serve.test_images import picture

simplejpeg = pytest.importorskip("simplejpeg")


def smooth(height: int, width: int) -> bytes:
    """A picture whose pixels are like their neighbours, as photographs' are."""
    y, x = np.mgrid[:height, :width]
    pixels = np.stack([x * 255 // width, y * 255 // height, (x + y) * 100 // width], axis=2)
    file = io.BytesIO()
    Image.fromarray(pixels.astype(np.uint8)).save(file, "JPEG", quality=95)
    return file.getvalue()


def drawn(crop: RandomCrop, data: bytes, index: int) -> np.ndarray:
    found = crop({"jpg": data, "cls": 3}, generator(0, 0, index))
    assert found["cls"] == 3
    pixels: np.ndarray = found["jpg"]
    return pixels


def test_a_crop_is_the_box_resized_and_mirrored_half_of_the_time() -> None:
    data = picture()
    mirrored = 0
    for index in range(40):
        rng = generator(0, 0, index)
        pixels = decode(data)
        wanted = resized_crop(pixels, random_box(*pixels.shape[:2], rng), 32, exact=True)
        found = drawn(RandomCrop(32, exact=True), data, index)
        mirrored += not np.array_equal(found, wanted)
        assert np.array_equal(found, wanted) or np.array_equal(found[:, ::-1], wanted)
    assert 8 < mirrored < 32


def test_scaled_it_is_the_same_crop_of_fewer_pixels(monkeypatch: pytest.MonkeyPatch) -> None:
    heights, wholes = [], 0

    def noting(data: bytes, **least: tuple[int, int]) -> np.ndarray:
        pixels = decode(data, **least)
        heights.append(pixels.shape[0])
        return pixels

    def whole(data: bytes, box_of: Callable[[int, int], Box]) -> tuple[np.ndarray, Box]:
        nonlocal wholes
        wholes += 1
        return decode_box(data, box_of)

    monkeypatch.setattr(crops, "decode", noting)
    monkeypatch.setattr(crops, "decode_box", whole)
    data = smooth(480, 640)
    for index in range(40):
        one, other = (drawn(RandomCrop(96, scaled=scaled), data, index) for scaled in (False, True))
        assert np.abs(one.astype(int) - other).mean() < 3
    assert set(heights) == {120, 240}
    assert len(heights) + wholes == 80
    assert wholes > 40


def test_what_is_no_jpeg_is_decoded_whole() -> None:
    data = picture(200, 200, kind="PNG")
    both = [RandomCrop(16, scaled=scaled) for scaled in (False, True)]
    one, other = (lambda i, crop=crop: drawn(crop, data, i) for crop in both)
    assert grade(one, other, range(10)).quality == "exact"


def folder(path: Path, data: bytes) -> Files:
    for i in range(20):
        (path / f"{i}.jpg").write_bytes(data)
    return Files(path)


def test_half_the_pixels_are_weighed_graded_and_not_chosen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crops, "WORTH", 100)  # however busy the machine
    loader = Loader(folder(tmp_path, picture(960, 1280)), 4, transform=RandomCrop(32))
    batch = next(iter(loader))
    loader.close()
    assert batch["jpg"].shape == (4, 32, 32, 3)
    (told,) = (note for note in loader.notes if "RandomCrop" in note)
    assert "scaled=True" in told
    assert "levels off (changed)" in told
    assert loader.maker.transform.scaled is False  # type: ignore[union-attr]


def test_where_crops_are_too_large_for_it_nothing_is_told(tmp_path: Path) -> None:
    source = folder(tmp_path, picture())
    for crop in (RandomCrop(150), RandomCrop(32, scaled=True)):
        loader = Loader(source, 4, transform=crop, executor="none")
        assert weighed(loader.maker) is None


def test_broken_images_are_told_of_in_their_turn(tmp_path: Path) -> None:
    loader = Loader(folder(tmp_path, picture()[:700]), 4, transform=RandomCrop(32), on_error="skip")
    assert weighed(loader.maker) is None


def test_weighing_draws_nothing(tmp_path: Path) -> None:
    def prepare(sample: dict[str, Any]) -> dict[str, Any]:
        random.random()
        return sample

    source = folder(tmp_path, picture(960, 1280))
    maker = BatchMaker(source, seed=0, prepare=prepare, transform=RandomCrop(32))
    before = random_states()
    weighed(maker)
    assert moved(before, random_states()) == set()
