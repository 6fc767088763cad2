"""Images stored as the pixels that they decode to: what is read then is never decoded again."""

from __future__ import annotations

import io
from collections.abc import Collection
from typing import Any

from outpace.errors import DataError, MissingExtra
from outpace.serve.images import JPEG, Pixels, decode, middle_box, resized_crop
from outpace.serve.resizing import SKIP, holds_classes, image_fields

KEY, CLASS = "__key__", "cls"


def decoded(
    sample: dict[str, Any], images: Collection[str] = (), side: int | None = None
) -> dict[str, Any]:
    """A sample with height x width x 3 bytes of RGB, as Pillow converts to it, for each encoded image.

    ``side``: of the square that the middle of each image is brought to, by bilinear filtering, of a mask by
    the nearest pixel. Images are as `resized` takes them. Its name, of another length in each sample, is left
    out; a class that a tar holds as text becomes its number. Raises DataError where there is no image, one
    that is not whole, or one with more than 8 bits.
    """
    found = image_fields(sample, images)
    return {
        name: _rgb(value, side)
        if name in found and isinstance(value, bytes)
        else _number(name, value)
        for name, value in sample.items()
        if name != KEY
    }


def _number(name: str, value: Any) -> Any:
    return int(value) if name == CLASS and isinstance(value, bytes) and value.isdigit() else value


def _rgb(data: bytes, side: int | None) -> Pixels:
    if data[:3] != JPEG and (mode := _mode(data))[0] in "IF":
        raise DataError(f"pixels of mode {mode}, of which 8 bits would be kept", SKIP)
    pixels = decode(data)
    if side is None:
        return pixels
    box = middle_box(*pixels.shape[:2])
    return resized_crop(pixels, box, side, exact=True, nearest=holds_classes(data))


def _mode(data: bytes) -> str:
    """What a pixel is, as Pillow names it; RGB where it cannot tell, of which decoding says why."""
    try:
        from PIL import Image
    except ImportError:
        raise MissingExtra("pillow", "serve") from None
    try:
        with Image.open(io.BytesIO(data)) as image:
            wide = any(";16" in str(tile) for tile in image.tile)
            return f"I;16 ({image.mode})" if wide else image.mode
    except Exception:  # of whatever kind it raises for a head that is broken
        return "RGB"
