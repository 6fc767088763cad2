"""Image decoding: what Pillow and OpenCV cost, and another decoder in Pillow's place.

``load_pixels`` is provided by `outpace.serve`: it fills an opened JPEG with the very pixels that
Pillow would decode, or returns False to leave it to Pillow.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import sys
from collections.abc import Callable
from time import perf_counter_ns
from typing import Any

from outpace.seams.host import Host
from outpace.seams.setup import AS_IS, Setup


class DecodeSeam:
    """Stands at ``PIL.ImageFile.ImageFile.load`` and ``cv2.imread``/``imdecode``, once imported."""

    name = "decode"

    def __init__(self, host: Host) -> None:
        self.host = host
        self.setup = AS_IS
        self.load_pixels: Callable[[Any, Setup], bool] | None = None
        self.patched: list[tuple[Any, str, Any]] = []
        self.nanoseconds = 0
        self.images = 0
        self.pixels = 0
        self.paths: list[str] = []
        self.installed = False
        self.known = (False, False)
        self.open_kept: Callable[[Any], Any] | None = None
        """an image whose pixels are kept, by its path, without opening the file; or None"""

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
                return original(image)
            start = perf_counter_ns()
            try:
                setup = seam.setup
                if seam.load_pixels is not None and (
                    setup.decoder != "pillow" or setup.decoded_bytes
                ):
                    filled = seam.host.guard("decode", seam.load_pixels, image, setup)
                    if filled:
                        return sys.modules["PIL.Image"].Image.load(image)
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

    def _wrap_open(self, original: Any) -> Any:
        seam = self

        @functools.wraps(original)
        def open_image(fp: Any, *args: Any, **kwargs: Any) -> Any:
            if seam.setup.decoded_bytes and seam.open_kept is not None and not args and not kwargs:
                kept = seam.host.guard("decode", seam.open_kept, fp)
                if kept is not None:
                    seam.images += 1
                    return kept
            return original(fp, *args, **kwargs)

        return open_image

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
