"""Image decoding: what Pillow and OpenCV cost, and another decoder in Pillow's place.

The other decoder comes from `outpace.serve`. Images may share the pixels that it keeps: Pillow copies
those of a ``readonly`` image before it changes them. It does not where a program asks for access to
the pixels or writes them in some other way, so that there the image gets its own beforehand.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import sys
from time import perf_counter_ns
from typing import Any, Protocol

import torch
from torch.utils.data import get_worker_info

from outpace.seams.host import Host
from outpace.seams.image_source import source_of
from outpace.seams.in_place_of import Replaced, in_place_of
from outpace.seams.setup import AS_IS, Setup
from outpace.seams.start_method import forks

WITHIN = ("PIL.Image", "PIL.ImageFile")
"""modules that call ``load`` without using the access to pixels that it returns"""
WRITERS = ("frombytes", "putpalette")
SMALLER = ("convert", "crop", "resize")
"""what a script does to an opened image before it is known how large that is to be, besides copying it"""
FROM_FILE = (
    ("PIL.JpegImagePlugin", "JpegImageFile", "draft"),
    ("PIL.PngImagePlugin", "PngImageFile", "verify"),
    ("PIL.ImageFile", "ImageFile", "verify"),
)
"""a draft is at another scale than the pixels that are kept, and to verify is to read all of a file"""
LOOKED_AT, MOST_HELD = 16, 1 << 24
"""images of which it is noted where they come from, and bytes that those in memory may be in all"""
UNLOADED = "_outpace_unloaded"
"""attribute of kept images that were given as just opened, and are not loaded since"""


class Decoder(Protocol):
    """What stands in Pillow's place."""

    def key_of(self, image: Any, setup: Setup) -> Any:
        """By what an opened image's pixels are kept; None: they are not to be."""

    def load_pixels(self, image: Any, key: Any, setup: Setup) -> bool:
        """Fill an opened image; False leaves it to Pillow."""

    def keep(self, image: Any, key: Any, setup: Setup) -> None:
        """Keep the pixels of one that Pillow has filled."""

    def waiting(self, image: Any) -> Any:
        """What stands for an opened image until it is known how large it is to be; or None."""

    def open_kept(self, path: Any) -> Any:
        """An image whose pixels are kept, without opening the file; or None."""

    def open_anew(self, image: Any) -> None:
        """Have a kept image as its file is opened, with no pixels yet."""

    def copy_kept(self, image: Any) -> Any:
        """A copy that shares its kept pixels until one of them changes; or None."""

    def detach(self, image: Any) -> None:
        """Give an image that shares kept pixels its own."""


class DecodeSeam:
    """Stands at ``PIL.ImageFile.ImageFile.load`` and ``cv2.imread``/``imdecode``, once imported; where
    decoded images are kept, also at what opens, drafts, verifies, copies and changes them; where they are
    decoded at a smaller scale, at what makes them smaller.

    A function that a script has taken from its module by now cannot be pickled while ours stands there. So
    what a data set may hold is left alone until it is needed, and where workers are not forked.
    """

    name = "decode"

    def __init__(self, host: Host) -> None:
        self.host = host
        self.setup = AS_IS
        self.decoder: Decoder | None = None
        self.replaced = Replaced()
        self.nanoseconds = 0
        self.images = 0
        self.sources: list[str | bytes] = []
        self.held = 0
        """bytes of those that are in memory"""
        self.installed = False
        self.known = (False, False, False, False)

    def install(self) -> None:
        """Put the seam in; libraries that are imported later are met at the next ``refresh``."""
        self.installed = True
        self.refresh()

    def refresh(self, *, fetches: bool = False) -> None:
        """Stand at what has been imported by now. ``fetches``: this process is about to make a batch."""
        pillow, opencv = "PIL.ImageFile" in sys.modules, fetches and "cv2" in sys.modules
        keeps, scales = bool(self.setup.decoded_bytes), self.setup.scaled
        known = (pillow, opencv, keeps, scales)
        if not self.installed or known == self.known:
            return
        self.known = known
        if pillow:
            self._stand_at_pillow(keeps=keeps, scales=scales)
        if opencv and forks():
            cv2 = sys.modules["cv2"]
            for name in ("imread", "imdecode"):
                if hasattr(cv2, name):
                    self.replaced.put(cv2, name, functools.partial(self._timed, name))

    def _stand_at_pillow(self, *, keeps: bool, scales: bool) -> None:
        put, image = self.replaced.put, sys.modules["PIL.Image"]
        put(sys.modules["PIL.ImageFile"].ImageFile, "load", self._wrap_load)
        if keeps or scales:
            put(image.Image, "copy", self._wrap_copy)
        if scales:
            for name in SMALLER:
                put(image.Image, name, functools.partial(self._wrap_smaller, name))
        if keeps:
            image.preinit()  # as the first image that is opened has it do
            put(image, "open", self._wrap_open)
            for module, kind, name in FROM_FILE:
                if (plugin := sys.modules.get(module)) is not None:
                    put(getattr(plugin, kind), name, self._from_file)
            put(image.Image, "load", functools.partial(self._detached, unless=WITHIN))
            for name in WRITERS:
                put(image.Image, name, self._detached)

    def remove(self) -> None:
        """Take it out."""
        self.installed = False
        self.known = (False, False, False, False)
        self.replaced.put_all_back()
        self.setup = AS_IS

    def reconcile(self, setup: Setup) -> None:
        """Decode as ``setup`` says; Pillow is then met here, before its first image is opened."""
        self.setup = setup
        if setup.decodes:
            with contextlib.suppress(ImportError):
                importlib.import_module("PIL.ImageFile")
        self.refresh()

    def _wrap_load(self, original: Any) -> Any:
        seam = self

        @functools.wraps(original)
        def load(image: Any) -> Any:
            if not getattr(image, "tile", None):
                image.__dict__.pop(UNLOADED, None)
                if image.readonly and calling_module() not in WITHIN:
                    seam._detach(image)
                return original(image)
            seam._note_source(image)  # once it is loaded nothing tells it any more
            start = perf_counter_ns()
            try:
                setup = seam.setup
                if setup.decoder != "pillow" or setup.decoded_bytes:
                    seam._fill(image, setup, original)
                    if image.readonly and calling_module() not in WITHIN:
                        seam._detach(image)
                return original(image)
            finally:
                seam.nanoseconds += perf_counter_ns() - start
                seam.images += 1

        return load

    def _note_source(self, image: Any) -> None:
        """Of a few, for who looks at them later: what is in memory is held until then, and so is little."""
        if len(self.sources) >= LOOKED_AT or get_worker_info() is not None:
            return
        source = source_of(image)
        size = len(source) if isinstance(source, bytes) else 0
        if source is not None and self.held + size <= MOST_HELD:
            self.held += size
            self.sources.append(source)

    def _fill(self, image: Any, setup: Setup, original: Any) -> None:
        """What Pillow raises is the script's: it would load a broken image a second time without an error."""
        decoder, guard = self.decoder, self.host.guard
        if decoder is None:
            return
        key = guard("decode", decoder.key_of, image, setup)
        if not guard("decode", decoder.load_pixels, image, key, setup):
            original(image)
            guard("decode", decoder.keep, image, key, setup)

    def _wrap_open(self, original: Any) -> Any:
        seam = self

        @functools.wraps(original)
        def open_image(fp: Any, *args: Any, **kwargs: Any) -> Any:
            keeps = seam.setup.decoded_bytes and not args and not kwargs
            if keeps and seam.decoder is not None:
                kept = seam.host.guard("decode", seam.decoder.open_kept, fp)
                if kept is not None:
                    setattr(kept, UNLOADED, True)
                    seam.images += 1
                    return kept
            return original(fp, *args, **kwargs)

        return open_image

    def _from_file(self, original: Any) -> Any:
        """What reads the file of an image that was just opened, as if that were open."""
        seam = self

        @functools.wraps(original)
        def method(image: Any, *args: Any, **kwargs: Any) -> Any:
            if image.__dict__.pop(UNLOADED, False) and seam.decoder is not None:
                seam.host.guard("decode", seam.decoder.open_anew, image)
            return original(image, *args, **kwargs)

        return method

    def _wrap_copy(self, original: Any) -> Any:
        seam = self

        @functools.wraps(original)
        def copy(image: Any) -> Any:
            image.__dict__.pop(UNLOADED, None)
            if (waiting := seam._waiting(image)) is not None:
                return waiting
            if seam.setup.decoded_bytes and seam.decoder is not None and image.readonly:
                shared = seam.host.guard("decode", seam.decoder.copy_kept, image)
                if shared is not None:
                    return shared
            return original(image)

        return copy

    def _wrap_smaller(self, name: str, original: Any) -> Any:
        seam = self

        @functools.wraps(original)
        def method(image: Any, *args: Any, **kwargs: Any) -> Any:
            waiting = seam._waiting(image)
            if waiting is None:
                return original(image, *args, **kwargs)
            return getattr(waiting, name)(*args, **kwargs)

        return method

    def _waiting(self, image: Any) -> Any:
        """Only of a loader that is known to train, where gradients are recorded: what a model is judged on
        stays as it is.
        """
        setup = self.setup
        if not setup.scaled or setup.decoded_bytes or self.decoder is None:
            return None
        if not (getattr(image, "tile", None) and self.host.told.for_training()):
            return None
        if not torch.is_grad_enabled():
            return None
        return self.host.guard("decode", self.decoder.waiting, image)

    def _detached(self, original: Any, unless: tuple[str, ...] = ()) -> Any:
        seam = self

        @functools.wraps(original)
        def method(image: Any, *args: Any, **kwargs: Any) -> Any:
            if image.readonly and calling_module() not in unless:
                seam._detach(image)
            return original(image, *args, **kwargs)

        return method

    def _detach(self, image: Any) -> None:
        if self.decoder is not None:
            self.host.guard("decode", self.decoder.detach, image)

    def _timed(self, name: str, original: Any) -> Any:
        seam = self

        @in_place_of(sys.modules["cv2"], name)
        def decode(*args: Any, **kwargs: Any) -> Any:
            start = perf_counter_ns()
            try:
                return original(*args, **kwargs)
            finally:
                seam.nanoseconds += perf_counter_ns() - start
                seam.images += 1

        return decode


def calling_module() -> str:
    """The module that called the function that asks."""
    return str(sys._getframe(2).f_globals.get("__name__", ""))
