"""Decoded pixels on disk, of images that memory has no room for.

Each process writes a file of its own without a name, which is gone with the last process that reads it;
forked workers read what was written before they began. A disk that is full keeps what it has.
"""

from __future__ import annotations

import os
import tempfile
from typing import Any, NamedTuple, final

from outpace.serve.forks import lock_for_forks
from outpace.serve.kept_bytes import KeptBytes

MODES = {"RGB": 3, "L": 1, "RGBA": 4}
"""of images that are kept, and bytes of a pixel"""
LOCK = lock_for_forks()


class Place(NamedTuple):
    """Where the pixels of an image are."""

    file: Any
    start: int
    length: int
    mode: str
    size: tuple[int, int]


@final
class Spill:
    """Pixels by key. Nothing is thrown out: once the limit is reached, no more is kept."""

    def __init__(self) -> None:
        self.places: dict[Any, Place] = {}
        self.bytes = KeptBytes()
        self.full = False
        self._file: Any = None
        self._pid = self._end = 0

    def get(self, key: Any) -> Any:
        """A core image of its own with the pixels, or None."""
        place = self.places.get(key)
        if place is None:
            return None
        from PIL import Image

        data = os.pread(place.file.fileno(), place.length, place.start)
        if len(data) < place.length:
            return None
        return Image.frombytes(place.mode, place.size, data).im

    def put(self, key: Any, image: Any, limit: int) -> bool:
        """Keep the pixels of a loaded image; ``limit``: bytes that all may take. Whether it is kept."""
        width, height = image.size
        length = width * height * MODES.get(image.mode, 0)
        if not length or self.full:
            return False
        with LOCK:
            if key in self.places or not self.bytes.take(length, limit):
                return key in self.places
            try:
                file, start = self._writing(), self._end
                if os.pwrite(file.fileno(), image.tobytes(), start) < length:
                    raise OSError("the disk is full")
            except OSError:
                self.full = True
                self.bytes.give_back(length)
                return False
            self._end += length
            self.places[key] = Place(file, start, length, image.mode, image.size)
        return True

    def _writing(self) -> Any:
        """The file that this process writes: what it inherited belongs to its parent."""
        if self._pid != os.getpid():
            self._file = tempfile.TemporaryFile()  # noqa: SIM115  (it stays open)
            self._pid, self._end = os.getpid(), 0
        return self._file
