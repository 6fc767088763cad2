"""Kept images: shared by all that draw them, and never changed by any of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageDraw

from outpace.seams.setup import AS_IS
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
