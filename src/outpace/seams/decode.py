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

from outpace.seams.host import Host
from outpace.seams.setup import AS_IS, Setup

WITHIN = ("PIL.Image", "PIL.ImageFile")
"""modules that call ``load`` without using the access to pixels that it returns"""
WRITERS = ("frombytes", "putpalette")


class Decoder(Protocol):
    """What stands in Pillow's place."""

    def key_of(self, image: Any, setup: Setup) -> Any:
        """By what an opened image's pixels are kept; None: they are not to be."""

    def load_pixels(self, image: Any, key: Any, setup: Setup) -> bool:
        """Fill an opened image; False leaves it to Pillow."""

    def keep(self, image: Any, key: Any, setup: Setup) -> None:
        """Keep the pixels of one that Pillow has filled."""

    def open_kept(self, path: Any) -> Any:
        """An image whose pixels are kept, without opening the file; or None."""

    def copy_kept(self, image: Any) -> Any:
        """A copy that shares its kept pixels until one of them changes; or None."""

    def detach(self, image: Any) -> None:
        """Give an image that shares kept pixels its own."""


class DecodeSeam:
    """Stands at ``PIL.ImageFile.ImageFile.load`` and ``cv2.imread``/``imdecode``, once imported."""

    name = "decode"

    def __init__(self, host: Host) -> None:
        self.host = host
        self.setup = AS_IS
        self.decoder: Decoder | None = None
        self.patched: list[tuple[Any, str, Any]] = []
        self.nanoseconds = 0
        self.images = 0
        self.pixels = 0
        self.paths: list[str] = []
        self.installed = False
        self.known = (False, False)

    def install(self) -> None:
        """Put the seam in; libraries that are imported later are met at the next ``refresh``."""
        self.installed = True
        self.refresh()

    def refresh(self) -> None:
        """Patch what has been imported by now."""
        known = ("PIL.ImageFile" in sys.modules, "cv2" in sys.modules)
        if not self.installed or known == self.known:
            return
        self.known = known
        done = {(id(owner), name) for owner, name, _ in self.patched}
        pillow = sys.modules.get("PIL.ImageFile")
        if pillow is not None and (id(pillow.ImageFile), "load") not in done:
            self._patch(pillow.ImageFile, "load", self._wrap_load(pillow.ImageFile.load))
            image = sys.modules["PIL.Image"]
            self._patch(image, "open", self._wrap_open(image.open))
            self._patch(image.Image, "copy", self._wrap_copy(image.Image.copy))
            self._patch(image.Image, "load", self._detached(image.Image.load, WITHIN))
            for name in WRITERS:
                self._patch(image.Image, name, self._detached(getattr(image.Image, name)))
        cv2 = sys.modules.get("cv2")
        for name in ("imread", "imdecode"):
            if cv2 is not None and hasattr(cv2, name) and (id(cv2), name) not in done:
                self._patch(cv2, name, self._timed(getattr(cv2, name)))

    def _patch(self, owner: Any, name: str, wrapper: Any) -> None:
        self.patched.append((owner, name, getattr(owner, name)))
        setattr(owner, name, wrapper)

    def remove(self) -> None:
        """Take it out."""
        self.installed = False
        self.known = (False, False)
        for owner, name, original in self.patched:
            setattr(owner, name, original)
        self.patched = []

    def reconcile(self, setup: Setup) -> None:
        """Decode as ``setup`` says; Pillow is then met here, before its first image is opened."""
        self.setup = setup
        if setup.decoder != "pillow" or setup.decoded_bytes:
            with contextlib.suppress(ImportError):
                importlib.import_module("PIL.ImageFile")
        self.refresh()

    def _wrap_load(self, original: Any) -> Any:
        seam = self

        @functools.wraps(original)
        def load(image: Any) -> Any:
            if not getattr(image, "tile", None):
                if image.readonly and calling_module() not in WITHIN:
                    seam._detach(image)
                return original(image)
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
                size = image.size
                seam.pixels += size[0] * size[1]
                if len(seam.paths) < 64:
                    name = getattr(image, "filename", "")
                    if isinstance(name, str) and name:
                        seam.paths.append(name)

        return load

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
                    seam.images += 1
                    return kept
            return original(fp, *args, **kwargs)

        return open_image

    def _wrap_copy(self, original: Any) -> Any:
        seam = self

        @functools.wraps(original)
        def copy(image: Any) -> Any:
            if seam.setup.decoded_bytes and seam.decoder is not None and image.readonly:
                shared = seam.host.guard("decode", seam.decoder.copy_kept, image)
                if shared is not None:
                    return shared
            return original(image)

        return copy

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

    def _timed(self, original: Any) -> Any:
        seam = self

        @functools.wraps(original)
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
