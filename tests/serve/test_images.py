from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from outpace.errors import DataError
from outpace.serve import images
from outpace.serve.images import (
    decode,
    decode_box,
    grade,
    middle_box,
    mirrored,
    random_box,
    resized_crop,
)
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


def to_bottom(data: bytes, rows: int) -> np.ndarray:
    """Decoded for a box that ends after so many rows."""
    pixels, box = decode_box(data, lambda height, width: (0, 0, width, rows))
    assert box[3] == rows
    return pixels


@settings(deadline=None, max_examples=150)
@given(
    size=st.tuples(st.integers(1, 90), st.integers(1, 90)),
    mode=st.sampled_from(["RGB", "L", "CMYK"]),
    kind=st.sampled_from(["JPEG", "PNG"]),
    how=st.fixed_dictionaries(
        {"quality": st.integers(30, 95), "progressive": st.booleans()},
        optional={
            "subsampling": st.sampled_from([0, 1, 2]),
            "restart_marker_blocks": st.integers(1, 4),
            "comment": st.just(b"\xff\xc0\x00\x11\x08\x00\x01\x00\x01\x03 \xff\xd9"),
        },
    ),
    share=st.floats(0.0, 1.0),
)
def test_down_to_a_row_all_pixels_are_those_of_the_whole(
    size: tuple[int, int], mode: str, kind: str, how: dict[str, Any], share: float
) -> None:
    noise = np.random.default_rng(0).integers(0, 60, (*size, 3)).astype(np.uint8)
    noise += np.linspace(0, 190, size[0] * size[1], dtype=np.uint8).reshape(*size, 1)
    file = io.BytesIO()
    mode = "RGB" if kind == "PNG" else mode
    Image.fromarray(noise).convert(mode).save(file, kind, **(how if kind == "JPEG" else {}))
    rows = 1 + round(share * (size[0] - 1))
    pixels = to_bottom(file.getvalue(), rows)
    assert pixels.shape[0] >= rows
    assert np.array_equal(pixels[:rows], decode(file.getvalue())[:rows])


def test_what_is_below_a_box_is_not_decoded() -> None:
    pytest.importorskip("simplejpeg")
    assert to_bottom(picture(), 30).shape == (32, 160, 3)
    assert to_bottom(picture(), 119).shape == (120, 160, 3)
    assert to_bottom(picture(mode="L"), 30).shape == (32, 160, 3)
    assert to_bottom(picture(mode="CMYK"), 30).shape == (120, 160, 3)
    trailed = picture() + bytes(images.ENDING)  # whether it is whole cannot be told
    assert to_bottom(trailed, 30).shape == (120, 160, 3)


def test_a_truncated_file_is_broken_whatever_is_wanted_of_it() -> None:
    data = picture(240, 320)
    for length in (20, 300, len(data) // 2, len(data) - 3):
        with pytest.raises(DataError, match="bytes"):
            to_bottom(data[:length], 4)


def test_what_is_broken_says_so() -> None:
    with pytest.raises(DataError, match="no image"):
        decode(b"hello, world")
    with pytest.raises(DataError, match="broken image"):
        decode(picture()[:900])
    with pytest.raises(DataError, match="broken image"):
        decode(picture(kind="PNG")[:300])


def test_whatever_a_decoder_raises_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: Any) -> Any:
        raise TypeError("an integer is required")

    data = picture(kind="PNG")
    monkeypatch.setattr(Image.Image, "convert", broken)
    with pytest.raises(DataError, match=r"a broken image of .* an integer is required"):
        decode(data)


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


@pytest.mark.parametrize(("kind", "mode"), [("JPEG", "RGB"), ("JPEG", "CMYK"), ("PNG", "RGB")])
def test_pixels_may_be_changed(kind: str, mode: str) -> None:
    pixels = decode(picture(kind=kind, mode=mode))
    pixels[0] = 7
    assert (pixels[0] == 7).all()
