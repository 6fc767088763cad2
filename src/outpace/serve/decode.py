"""Decoding JPEG files faster with the very same pixels or at a smaller scale, and keeping decoded images.

simplejpeg calls libjpeg-turbo with the accurate inverse DCT and smooth upsampling, which is what
Pillow does, so that the pixels are equal; it also lets other threads run while it decodes. Files
that it cannot read (CMYK, truncated) are left to Pillow, which reports them as it always does.
"""

from __future__ import annotations

import contextlib
import io
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from outpace.seams.image_source import file_of
from outpace.seams.setup import Setup
from outpace.serve.forks import lock_for_forks
from outpace.serve.images import END, ENDING
from outpace.serve.kept_bytes import KeptBytes
from outpace.serve.spill import Spill

KEPT = "_outpace_kept"
"""attribute of images whose pixels are kept"""
COLOURS = {"RGB": "RGB", "L": "GRAY"}
LOCK = lock_for_forks()


class Decoder:
    """Fills opened images with pixels: from the cache, by simplejpeg, or not at all."""

    def __init__(self) -> None:
        self.kept: dict[Any, Any] = {}
        self.opened: dict[str, tuple[Any, Any]] = {}
        """path -> (size and time of the file, the image as it is after loading)"""
        self.bytes = KeptBytes()
        self.spill = Spill()

    def key_of(self, image: Any, setup: Setup) -> Any:
        """By what an opened image's pixels are kept; None: they are not to be."""
        return key_of(image) if setup.decoded_bytes else None

    def load_pixels(self, image: Any, key: Any, setup: Setup) -> bool:
        """Whether ``image`` (opened, not yet decoded) has been given its pixels."""
        core = self.kept.get(key)
        if core is not None:
            finish(image, core, readonly=1)
            return True
        core = self.spill.get(key)
        if core is not None:
            finish(image, core, readonly=0)
            return True
        fast = setup.decoder == "simplejpeg" and is_plain_jpeg(image)
        core = decode(image) if fast else None
        if core is None:
            return False
        finish(image, core, readonly=0)
        self.keep(image, key, setup)
        return True

    def keep(self, image: Any, key: Any, setup: Setup) -> None:
        """Keep the pixels of an image that has been given them."""
        if key is not None and not self._keep(key, image, image.im, setup.decoded_bytes):
            self.spill.put(key, image, setup.decoded_disk_bytes)

    def waiting(self, image: Any) -> Any:
        """A `Deferred` image for a whole JPEG of three colours, whose file is read here."""
        if not is_plain_jpeg(image) or image.mode != "RGB":
            return None
        from outpace.serve.deferred import Deferred

        try:
            image.fp.seek(0)
            data = image.fp.read()
        except (AttributeError, OSError, ValueError):
            return None  # Pillow says why.
        if END not in data[-ENDING:]:
            return None  # What it says of a file that is cut short the script may wait for here.
        if getattr(image, "_exclusive_fp", False):
            image.fp.close()
        image.fp = io.BytesIO(data)
        return Deferred(data, image.size, image.info)

    def _keep(self, key: Any, image: Any, core: Any, limit: int) -> bool:
        """Whether the pixels are kept in memory: none that are a mapped file's, which would stay open."""
        if getattr(image, "map", None) is not None:
            return False
        with LOCK:
            if key in self.kept:
                return True
            if not self.bytes.take(bytes_of(image), limit):
                return False
            self.kept[key] = core
        image.readonly = 1
        setattr(image, KEPT, True)
        by_path = getattr(image, "filename", "") and not getattr(image, "decoderconfig", ())
        if by_path and image.fp is None:
            self.opened[key[0]] = (key[1:3], copy_of(image))
        return True

    def open_kept(self, path: Any) -> Any:
        """A loaded image without opening its file, if the file is as it was; else None."""
        if not isinstance(path, str | os.PathLike):
            return None
        name = os.path.realpath(path) if os.path.islink(path) else os.fspath(path)
        found = self.opened.get(name)
        if found is None:
            return None
        try:
            state = os.stat(name)
        except OSError:
            return None  # Pillow says why it cannot be opened.
        if (state.st_size, state.st_mtime_ns) != found[0]:
            return None
        return copy_of(found[1])

    def open_anew(self, image: Any) -> None:
        """Have a kept image as its file is opened, with no pixels yet; what else it says stays."""
        opened = vars(type(image)(image.filename))
        image.__dict__.pop(KEPT)
        image.__dict__.update({k: v for k, v in opened.items() if k not in ("info", "_exif")})

    def copy_kept(self, image: Any) -> Any:
        """What ``image.copy()`` gives, with its pixels shared; None where they are not kept.

        ``convert("RGB")`` of an RGB image is such a copy.
        """
        if not getattr(image, KEPT, False):
            return None
        shared = image._new(image.im)
        shared.readonly = 1
        setattr(shared, KEPT, True)
        return shared

    def detach(self, image: Any) -> None:
        """Give an image that shares kept pixels its own."""
        if getattr(image, KEPT, False):
            image.im = image.im.copy()
            image.readonly = 0


def bytes_of(image: Any) -> int:
    """That a kept image takes: its pixels as Pillow has them, and what its file says besides."""
    pixels = image.size[0] * image.size[1] * (1 if image.mode in ("L", "P") else 4)
    said = (value for value in image.info.values() if isinstance(value, bytes))
    return int(pixels) + sum(map(len, said))


def copy_of(image: Any) -> Any:
    """An image of its own that shares its pixels until one of them is changed."""
    copied = image.__class__.__new__(image.__class__)
    copied.__dict__.update(image.__dict__)
    copied.info = dict(image.info)
    if "exif" in copied.info:
        # Read anew from there: what was read before may be changed by another copy.
        copied._exif = None
    return copied


def key_of(image: Any) -> Any:
    """What tells an image's pixels: its file, that file's size and time, and how it is decoded; None of
    one that is not to be kept.
    """
    if image.mode in ("P", "PA"):
        return None
    # Of several frames each has pixels of its own, and the file stays open for them.
    if getattr(image, "is_animated", False) or image.tell():
        return None
    found = file_of(image)
    if found is None:
        return None
    name, state = found
    draft = str(getattr(image, "decoderconfig", ""))
    return (name, state.st_size, state.st_mtime_ns, image.mode, image.size, draft)


def is_plain_jpeg(image: Any) -> bool:
    """A JPEG that is to be decoded whole: not drafted to a smaller scale, RGB or grey."""
    config = getattr(image, "decoderconfig", ()) or ()
    return (
        type(image).__name__ == "JpegImageFile"
        and image.mode in COLOURS
        and getattr(image, "layers", 0) in (1, 3)
        and (not config or config[0] in (0, 1))
    )


def decode(image: Any) -> Any:
    """The decoded core image, or None where simplejpeg is missing or cannot read the file."""
    try:
        import simplejpeg
        from PIL import Image
    except ImportError:
        return None
    try:
        image.fp.seek(0)
        pixels = simplejpeg.decode_jpeg(image.fp.read(), colorspace=COLOURS[image.mode])
    except (ValueError, OSError, AttributeError):
        return None
    if (pixels.shape[1], pixels.shape[0]) != image.size:
        return None
    return Image.frombytes(image.mode, image.size, pixels).im


def finish(image: Any, core: Any, readonly: int) -> None:
    """What ``ImageFile.load`` does at its end: pixels in place, the file closed if it is ours."""
    image.im = core
    image.tile = []
    image.readonly = readonly
    if readonly:
        setattr(image, KEPT, True)
    closes = getattr(image, "_close_exclusive_fp_after_loading", True)
    if getattr(image, "_exclusive_fp", False) and closes and image.fp is not None:
        image.fp.close()
    image.fp = None


def _by_pillow(image: Any) -> Any:
    from PIL import ImageFile

    load = getattr(ImageFile.ImageFile.load, "__wrapped__", ImageFile.ImageFile.load)
    load(image)
    return image.im


@dataclass
class Tried:
    """What trying some files gave; seconds an image."""

    files: int = 0
    read_from_files: int = 0
    identical: bool | None = None
    pillow_s: float = 0.0
    simple_s: float = 0.0
    kept_s: float = 0.0
    keeping_s: float = 0.0
    spilled_s: float = 0.0
    jpegs: int = 0
    pixels: float = 0.0

    @property
    def speedup(self) -> float:
        """Of simplejpeg over Pillow, where it gives the same pixels."""
        return self.pillow_s / self.simple_s if self.identical and self.simple_s else 1.0

    @property
    def file_share(self) -> float:
        """What is read from a file of its own among all."""
        return self.read_from_files / self.files if self.files else 0.0

    @property
    def jpeg_share(self) -> float:
        """JPEG files among all."""
        return self.jpegs / self.files if self.files else 0.0

    @property
    def mean_pixels(self) -> float:
        """Pixels an image."""
        return self.pixels / self.files if self.files else 0.0


def try_files(sources: Sequence[str | bytes], most: int = 16) -> Tried:
    """Decode images with Pillow and simplejpeg, and from kept pixels; compare pixels and times.

    ``sources``: paths, or what files hold.
    """
    tried = Tried()
    kept: list[Any] = []
    for source in list(dict.fromkeys(sources))[:most]:
        with contextlib.suppress(OSError):
            _try_file(source, tried, kept)
    for name in ("pillow_s", "simple_s", "kept_s", "keeping_s", "spilled_s"):
        setattr(tried, name, getattr(tried, name) / max(1, tried.files))
    return tried


def _try_file(source: str | bytes, tried: Tried, kept: list[Any]) -> None:
    with contextlib.suppress(ImportError):
        import simplejpeg  # noqa: F401  (so that its import is not timed)
    with _opened(source) as image:
        start = time.perf_counter()
        wanted = _by_pillow(image)
        tried.pillow_s += time.perf_counter() - start
        mode = image.mode
        spill = Spill()
        if spill.put(source, image, 1 << 30):
            start = time.perf_counter()
            spill.get(source)
            tried.spilled_s += time.perf_counter() - start
    start = time.perf_counter()
    kept.append(wanted.copy())
    tried.keeping_s += time.perf_counter() - start
    tried.files += 1
    tried.read_from_files += isinstance(source, str)
    tried.pixels += image.size[0] * image.size[1]
    with _opened(source) as image:
        start = time.perf_counter()
        finish(image, wanted, readonly=1)
        tried.kept_s += time.perf_counter() - start
    with _opened(source) as image:
        if not is_plain_jpeg(image):
            return
        start = time.perf_counter()
        core = decode(image)
        tried.simple_s += time.perf_counter() - start
    if core is not None:
        tried.jpegs += 1
        equal = _bytes(core, mode) == _bytes(wanted, mode)
        tried.identical = equal if tried.identical is None else tried.identical and equal


def _opened(source: str | bytes) -> Any:
    from PIL import Image

    return Image.open(io.BytesIO(source) if isinstance(source, bytes) else source)


def _bytes(core: Any, mode: str) -> bytes:
    from PIL import Image

    image = Image.new(mode, core.size)
    image.im = core
    return bytes(image.tobytes())
