from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from outpace.errors import DataError
from outpace.serve.images import decode, grade, middle_box, mirrored, random_box, resized_crop
from outpace.serve.order import generator


def picture(height: int = 120, width: int = 160, kind: str = "JPEG", mode: str = "RGB") -> bytes:
    y, x = np.mgrid[:height, :width]
    pixels = np.stack([x * 255 // width, y * 255 // height, (x * y) % 256], axis=2).astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).convert(mode).save(file, kind)
    return file.getvalue()


def by_pillow(data: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))


@pytest.mark.parametrize(
    ("kind", "mode"),
    [("JPEG", "RGB"), ("JPEG", "L"), ("JPEG", "CMYK"), ("PNG", "RGB"), ("PNG", "P")],
)
def test_pixels_are_pillows(kind: str, mode: str) -> None:
    data = picture(kind=kind, mode=mode)
    assert grade(by_pillow, decode, [data]) == ("exact", 0)


@pytest.mark.parametrize(
    ("smallest", "shape"), [((60, 80), (60, 80)), ((20, 20), (30, 40)), ((61, 61), (120, 160))]
)
def test_a_jpeg_is_decoded_at_a_half_or_a_quarter(
    smallest: tuple[int, int], shape: tuple[int, int]
) -> None:
    assert decode(picture(), smallest=smallest).shape == (*shape, 3)


def test_what_is_broken_says_so() -> None:
    with pytest.raises(DataError, match="no image"):
        decode(b"hello, world")
    with pytest.raises(DataError, match="broken image"):
        decode(picture()[:900])
    with pytest.raises(DataError, match="broken image"):
        decode(picture(kind="PNG")[:300])


def test_boxes_lie_inside() -> None:
    for i in range(300):
        rng = generator(0, 0, i)
        height, width = (int(n) for n in rng.integers(5, 400, size=2))
        left, top, right, bottom = random_box(height, width, rng)
        assert 0 <= left < right <= width
        assert 0 <= top < bottom <= height
    assert middle_box(100, 60) == (0, 20, 60, 80)


def test_resizing_is_near_pillow() -> None:
    pixels = decode(picture())
    rng = generator(0, 0, 0)
    boxes = [random_box(120, 160, rng) for _ in range(40)]
    for size in (16, 64, 200):
        found = grade(
            lambda box, size=size: resized_crop(pixels, box, size, exact=True),
            lambda box, size=size: resized_crop(pixels, box, size),
            boxes,
        )
        assert found.quality in ("exact", "near")


def test_what_is_cut_is_in_one_piece_and_its_own(recwarn: pytest.WarningsRecorder) -> None:
    """Whatever the source: torch gives planes for some layouts, and warns of memory not to be written to."""
    kept = decode(picture()).copy()
    kept.flags.writeable = False
    for pixels in (kept, kept[:, ::-1], kept[5:50, 7:30]):
        height, width = pixels.shape[:2]
        for box in ((0, 0, width, height), (3, 2, width - 1, height - 4)):
            for exact in (False, True):
                found = resized_crop(pixels, box, 24, exact=exact)
                assert found.flags.c_contiguous
                turned = mirrored(found)
                assert turned.flags.c_contiguous
                assert np.array_equal(turned, found[:, ::-1])
                turned[:] = 0
                found[:] = 0
    assert kept.any()
    assert not recwarn


def test_a_change_is_told() -> None:
    assert grade(lambda x: x, lambda x: x + 9, [np.zeros((2, 2), np.uint8)]) == ("changed", 9)
    assert grade(lambda x: x, lambda x: x[:1], [np.zeros((2, 2), np.uint8)]).quality == "changed"
    with pytest.raises(ValueError, match="no samples"):
        grade(by_pillow, decode, [])
