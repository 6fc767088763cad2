"""Images made smaller before they are stored: fewer bytes to read, fewer pixels to decode.

What is resized and encoded anew holds other pixels than its source, so a training on it learns
something else; it is graded "learning" and never done unless asked for. An image stays in its own format
under its own field: what was lossless is so again, and larger than as a JPEG. Of several frames the first
is kept.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Collection
from typing import Any

from outpace.errors import DataError, MissingExtra

SUFFIXES = ("jpg", "jpeg", "jpe", "jfif", "png", "webp", "bmp", "tif", "tiff", "gif", "ppm", "pgm")
LOSSLESS = ("PNG", "BMP", "TIFF", "GIF", "PPM")
"""formats as Pillow names them; what is in none of them and no WebP becomes a JPEG"""
LOSSY_TIFF = ("jpeg", "tiff_jpeg", "webp")
MIXED = ("RGB", "L", "RGBA", "LA", "CMYK", "YCbCr")
"""modes whose pixels are colours that can be averaged"""
FEW = 64
"""colours up to which an image is taken for a mask"""
ORIENTATION = 0x0112
SKIP = "--on-error skip leaves such files out"
GAP = 3.0
"""times the size wanted to which blocks of pixels are averaged before the filter"""


def resized(sample: Any, side: int, quality: int, images: Collection[str] = ()) -> Any:
    """A sample with its images' shorter sides at most ``side``, JPEG and WebP of that ``quality``.

    Images are fields of such a suffix, and those that are among ``images``. A smaller image keeps its
    bytes. Raises DataError where there is no image, or one that is not whole.
    """
    found = image_fields(sample, images)
    return {
        name: _resized(value, side, quality)
        if name in found and isinstance(value, bytes)
        else value
        for name, value in sample.items()
    }


def image_fields(sample: Any, images: Collection[str]) -> list[str]:
    """Names of a sample's images. Raises DataError where it has none."""
    found = [name for name in sample if name in images or name.split(".")[-1] in SUFFIXES]
    if not found:
        raise DataError("not an image", SKIP)
    return found


def _resized(data: bytes, side: int, quality: int) -> bytes:
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError as error:
        raise MissingExtra("pillow", "serve") from error
    try:
        with Image.open(io.BytesIO(data)) as image:
            wide = any(";16" in str(tile) for tile in image.tile)
            image.load()
            scale = side / min(image.size)
            if scale >= 1:
                return data
            if wide and image.mode in MIXED:
                raise DataError(
                    "colours of 16 bits, of which Pillow keeps 8", "--resize is not for it"
                )
            kind = image.format if image.format in (*LOSSLESS, "WEBP") else "JPEG"
            options: dict[str, Any] = {} if kind in LOSSLESS else {"quality": quality}
            if kind == "GIF":
                options["optimize"] = False  # else Pillow numbers a mask's values anew
            if kind == "TIFF" and image.info.get("compression") in LOSSY_TIFF:
                options["compression"] = "tiff_lzw"  # Pillow would take the file's own
            if exif := _orientation(image):
                options["exif"] = exif
            size = (max(side, round(image.width * scale)), max(side, round(image.height * scale)))
            out = io.BytesIO()
            _smaller(image, size, kind).save(out, kind, **options)
            return out.getvalue()
    except DataError:
        raise
    except UnidentifiedImageError as error:
        raise DataError("not an image that Pillow knows", SKIP) from error
    except Exception as error:  # of whatever kind a decoder raises for bytes that are none
        raise DataError(str(error) or type(error).__name__, SKIP) from error


def holds_classes(data: bytes) -> bool:
    """Whether an encoded image is a mask, a palette or a measurement, of which no means are to be taken."""
    from PIL import Image

    with contextlib.suppress(Exception), Image.open(io.BytesIO(data)) as image:
        return image.format in LOSSLESS and _is_mask(image)
    return False


def _is_mask(image: Any) -> bool:
    return not (image.mode in MIXED and image.getcolors(FEW) is None)


def _orientation(image: Any) -> bytes | None:
    """Exif that says which way up it is, where the image has such; what cannot be read of it is not kept."""
    from PIL.Image import Exif

    with contextlib.suppress(Exception):
        if found := image.getexif().get(ORIENTATION):
            kept = Exif()
            kept[ORIENTATION] = found
            return kept.tobytes()
    return None


def _smaller(image: Any, size: tuple[int, int], kind: str) -> Any:
    """Its pixels averaged, but for those of a mask, a palette or a measurement: the mean of two classes is
    a third one.
    """
    from PIL.Image import Resampling

    if kind == "JPEG":
        if image.mode[0] in "IF":
            raise DataError(f"pixels of mode {image.mode} do not fit into a JPEG")
        image = image if image.mode in ("RGB", "L") else image.convert("RGB")
    elif kind in LOSSLESS and _is_mask(image):
        return image.resize(size, Resampling.NEAREST)
    return image.resize(size, Resampling.LANCZOS, reducing_gap=GAP)
