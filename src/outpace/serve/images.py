"""Images from bytes to tensors: decoding, random boxes, cropping and resizing in one.

Each step away from what Pillow gives has a grade: "exact" (the same bits), "near" (at most two of
256 levels off) or "changed". Only the first needs no proof of quality.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterable
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional as F

from outpace.errors import DataError, MissingExtra

Pixels = NDArray[np.uint8]
Box = tuple[int, int, int, int]
"""left, top, right, bottom"""
Quality = Literal["exact", "near", "changed"]
NEAR = 2
JPEG, END = b"\xff\xd8\xff", b"\xff\xd9"
ENDING = 64
"""last bytes of a JPEG, in which its end is told where it is whole"""
BASELINE, NO_FRAME = (0xC0, 0xC1), (0xC4, 0xC8, 0xCC)
"""kinds of frames that are coded from top to bottom; kinds between frames' that are none"""
BLENDED = 2
"""rows below those that are needed which may be blended into them"""
SCALES = (4, 2)
"""parts of its size that a JPEG is decoded at quicker than whole: others are slower than that"""
AREA, RATIO = (0.08, 1.0), (3 / 4, 4 / 3)
"""of a random box: its share of the image, and its width over its height"""


class Grade(NamedTuple):
    """What a change does to the pixels. ``levels``: the largest difference of any, of 256."""

    quality: Quality
    levels: int


def decode(data: bytes, *, smallest: tuple[int, int] | None = None) -> Pixels:
    """An image file's pixels as Pillow gives them in RGB: height x width x 3.

    ``smallest``: a JPEG may be decoded at a half or a quarter, if that is as high and as wide at
    least; graded "changed". Raises DataError for what is not a whole image.
    """
    if data[:3] == JPEG:
        pixels = _decode_jpeg(data, smallest)
        if pixels is not None:
            return pixels
    return _by_pillow(data)


def decode_box(data: bytes, box_of: Callable[[int, int], Box]) -> tuple[Pixels, Box]:
    """An image's pixels, as `decode` gives them, from its top to the box's bottom at least; and the box.

    ``box_of`` is called with the image's height and width.
    """
    frame = _frame(data) if data[:3] == JPEG else None
    if frame is None:
        pixels = decode(data)
        return pixels, box_of(*pixels.shape[:2])
    box = box_of(*frame.size)
    rows = box[3] + BLENDED
    top = _top(data, frame, rows) if rows < frame.size[0] else None
    return decode(data) if top is None else top, box


def jpeg_size(data: bytes) -> tuple[int, int] | None:
    """Height and width of a JPEG by its head; None of anything else, or without simplejpeg."""
    if data[:3] != JPEG:
        return None
    try:
        import simplejpeg

        height, width, *_ = simplejpeg.decode_jpeg_header(data)
    except (ImportError, ValueError):
        return None
    return int(height), int(width)


def _decode_jpeg(data: bytes, smallest: tuple[int, int] | None) -> Pixels | None:
    """None where simplejpeg is missing or cannot read the file; Pillow then says why."""
    try:
        import simplejpeg
    except ImportError:
        return None
    try:
        height, width, colours, _ = simplejpeg.decode_jpeg_header(data)
        if colours not in ("YCbCr", "RGB", "Gray"):
            return None  # CMYK is not turned into RGB as Pillow does
        for scale in SCALES:
            least = {"min_height": height // scale, "min_width": width // scale}
            if smallest and height // scale >= smallest[0] and width // scale >= smallest[1]:
                return _three(simplejpeg.decode_jpeg(data, **least, min_factor=scale))
        return _three(simplejpeg.decode_jpeg(data))
    except ValueError:
        return None


class _Frame(NamedTuple):
    """Height and width of a JPEG, and where its file tells the height."""

    size: tuple[int, int]
    at: int


def _frame(data: bytes) -> _Frame | None:
    """None where it is not coded from top to bottom in grey or three colours, or has no end.

    ITU-T T.81 (1992), annex B: segments of a kind and a length, up to the frame's.
    """
    if END not in bytes(data[-ENDING:]):
        return None
    at = 2
    while at + 10 <= len(data) and data[at] == 0xFF:
        kind, length = data[at + 1], int.from_bytes(data[at + 2 : at + 4], "big")
        if kind in BASELINE and data[at + 9] in (1, 3):
            height, width = (int.from_bytes(data[n : n + 2], "big") for n in (at + 5, at + 7))
            return _Frame((height, width), at + 5) if height else None
        if 0xC0 <= kind <= 0xCF and kind not in NO_FRAME:
            return None
        at += 2 + length
    return None


def _top(data: bytes, frame: _Frame, rows: int) -> Pixels | None:
    """So many rows of a JPEG; None where simplejpeg is missing or cannot read the file.

    A file that says it is less high is decoded no further: what follows is not looked at, which the
    decoder takes for damage.
    """
    try:
        import simplejpeg
    except ImportError:
        return None
    less_high = b"".join((data[: frame.at], rows.to_bytes(2, "big"), data[frame.at + 2 :]))
    try:
        return _three(simplejpeg.decode_jpeg(less_high, strict=False))
    except ValueError:
        return None


def _three(pixels: Pixels) -> Pixels:
    return pixels if pixels.shape[2] == 3 else np.repeat(pixels, 3, axis=2)


def _by_pillow(data: bytes) -> Pixels:
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError:
        raise MissingExtra("pillow", "serve") from None
    try:
        with Image.open(io.BytesIO(data)) as image:
            return np.array(image.convert("RGB"))  # not the bytes that it is made of
    except UnidentifiedImageError:
        raise DataError(f"{len(data):,} bytes that are no image: {data[:8]!r}...") from None
    except Exception as error:  # of whatever kind a decoder raises for bytes that are none
        raise DataError(f"a broken image of {len(data):,} bytes: {error}") from error


def random_box(height: int, width: int, rng: np.random.Generator) -> Box:
    """A box of a random share of the area and a random width over height (Szegedy et al. 2015)."""
    for _ in range(10):
        size = height * width * rng.uniform(*AREA)
        shape = math.exp(rng.uniform(math.log(RATIO[0]), math.log(RATIO[1])))
        w, h = round(math.sqrt(size * shape)), round(math.sqrt(size / shape))
        if 0 < w <= width and 0 < h <= height:
            left, top = int(rng.integers(width - w + 1)), int(rng.integers(height - h + 1))
            return left, top, left + w, top + h
    return middle_box(height, width)


def middle_box(height: int, width: int) -> Box:
    """The largest square in the middle."""
    side = min(height, width)
    left, top = (width - side) // 2, (height - side) // 2
    return left, top, left + side, top + side


def resized_crop(
    pixels: Pixels, box: Box, size: int, *, exact: bool = False, nearest: bool = False
) -> Pixels:
    """``box`` of an image, brought to size x size by bilinear filtering with antialiasing.

    By torch on the bytes themselves, at most two levels off what Pillow gives; with ``exact`` by
    Pillow, with ``nearest`` too by the nearest pixel.
    """
    left, top, right, bottom = box
    if exact:
        from PIL import Image

        image = Image.fromarray(pixels).crop(box)
        how = Image.Resampling.NEAREST if nearest else Image.Resampling.BILINEAR
        return np.array(image.resize((size, size), how))
    inside = torch.from_numpy(pixels[top:bottom, left:right].copy())
    # Made a batch before it is turned: else torch takes it for planes, and gives planes.
    part = inside[None].permute(0, 3, 1, 2)
    small = F.interpolate(part, (size, size), mode="bilinear", antialias=True)
    return small[0].permute(1, 2, 0).numpy()


def mirrored(pixels: Pixels) -> Pixels:
    """The mirror image, in memory of its own: by torch, as numpy copies such a view byte by byte."""
    return torch.from_numpy(pixels).flip(1).numpy()


def grade(
    one: Callable[[Any], Pixels], other: Callable[[Any], Pixels], samples: Iterable[Any]
) -> Grade:
    """How far ``other`` is from ``one`` on samples; raises ValueError where there are none."""
    levels = -1
    for sample in samples:
        first, second = one(sample), other(sample)
        if first.shape != second.shape:
            return Grade("changed", 255)
        levels = max(levels, int(np.abs(first.astype(np.int16) - second).max(initial=0)))
    if levels < 0:
        raise ValueError("no samples to compare")
    return Grade("exact" if levels == 0 else "near" if levels <= NEAR else "changed", levels)
