"""Images made smaller before they are stored: fewer bytes to read, fewer pixels to decode.

What is resized and encoded anew holds other pixels than its source, so a training on it learns
something else; it is graded "learning" and never done unless asked for.
"""

from __future__ import annotations

import io
from collections.abc import Collection
from typing import Any

from outpace.errors import DataError, MissingExtra

SUFFIXES = ("jpg", "png", "webp", "bmp", "tif", "tiff", "gif", "ppm", "pgm")
ORIENTATION = 0x0112
GAP = 3.0
"""times the size wanted to which blocks of pixels are averaged before the filter"""


def resized(sample: Any, side: int, quality: int, images: Collection[str] = ()) -> Any:
    """A sample with its images' shorter sides at most ``side``, these as JPEG.

    Images are fields of such a suffix, which then tells JPEG, and those that are among ``images``. A
    smaller image keeps its bytes. Raises DataError where there is no image, or one that is not whole.
    """
    found = [name for name in sample if name in images or name.split(".")[-1] in SUFFIXES]
    if not found:
        raise DataError("not an image", "--on-error skip leaves such files out")
    changed = {}
    for name, value in sample.items():
        stem, dot, _ = name.rpartition(".")
        if name not in found or not isinstance(value, bytes):
            changed[name] = value
            continue
        data = _resized(value, side, quality)
        changed[name if data is value or name in images else f"{stem}{dot}jpg"] = data
    return changed


def _resized(data: bytes, side: int, quality: int) -> bytes:
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError as error:
        raise MissingExtra("pillow", "serve") from error
    try:
        with Image.open(io.BytesIO(data)) as image:
            image.load()
            scale = side / min(image.size)
            if scale >= 1:
                return data
            if image.mode[0] in "IF":
                raise DataError(f"pixels of mode {image.mode} do not fit into a JPEG")
            kept = Image.Exif()
            if ORIENTATION in image.getexif():
                kept[ORIENTATION] = image.getexif()[ORIENTATION]
            size = (max(side, round(image.width * scale)), max(side, round(image.height * scale)))
            plain = image if image.mode in ("RGB", "L") else image.convert("RGB")
            small = plain.resize(size, Image.Resampling.LANCZOS, reducing_gap=GAP)
            out = io.BytesIO()
            small.save(out, "JPEG", quality=quality, exif=kept.tobytes() if kept else b"")
            return out.getvalue()
    except UnidentifiedImageError as error:
        raise DataError(
            "not an image that Pillow knows", "--on-error skip leaves such files out"
        ) from error
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise DataError(str(error), "--on-error skip leaves such files out") from error
