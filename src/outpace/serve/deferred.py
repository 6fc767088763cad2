"""JPEG images that are decoded once it is known how large they are to be.

At a half or a quarter of its size a JPEG is decoded sooner. What a script makes smaller at once, as by
``resize`` or by ``crop`` and ``resize``, needs no more. Whatever else it does has the image decoded whole,
and then comes out as ever.
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Sequence
from typing import Any, NamedTuple, final

from PIL import Image

from outpace.errors import DataError
from outpace.serve.images import SCALES, decode

Part = tuple[float, float, float, float]
"""left, top, right, bottom"""


class Smaller(NamedTuple):
    """What was resized from a smaller scale: of the image the part in ``box``."""

    image: Deferred
    made: Image.Image
    resample: int | None
    box: Part


@final
class Deferred(Image.Image):
    """A whole JPEG of three colours, or a part of it, as ``convert("RGB")`` gives it.

    ``size``: the whole image's width and height.
    """

    asked: list[Smaller] | None = None
    """all that are resized so, as long as somebody wants to know"""

    def __init__(
        self, data: bytes, size: tuple[int, int], info: dict[Any, Any], part: Part | None = None
    ) -> None:
        super().__init__()
        self._data, self._whole = data, size
        self._part = part or (0, 0, *size)
        left, top, right, bottom = self._part
        self._mode, self._size = "RGB", (int(right - left), int(bottom - top))
        self.info = dict(info)

    @property
    def im(self) -> Any:
        """The pixels, which are decoded whole where they are not there yet."""
        if self._im is None:
            image = Image.fromarray(self._decoded())
            self._im = (image if self._part == (0, 0, *self._whole) else image.crop(self._part)).im
            self._data = b""
        if (closed := getattr(self._im, "ex", None)) is not None:
            raise closed
        return self._im

    @im.setter
    def im(self, pixels: Any) -> None:
        self._im = pixels

    def _decoded(self, smallest: tuple[int, int] | None = None) -> Any:
        try:
            return decode(self._data, smallest=smallest)
        except DataError as error:
            raise error.__cause__ or error from None  # as Pillow tells it

    def load(self) -> Any:
        """The access to its pixels."""
        assert self.im is not None
        return super().load()

    def copy(self) -> Image.Image:
        """One of its own, which may wait too."""
        return super().copy() if self._im is not None else self._cut(self._part)

    def convert(self, mode: str | None = None, *args: Any, **kwargs: Any) -> Image.Image:
        """In another mode, if it has not that mode already."""
        if self._im is None and mode == "RGB" and not args and not kwargs:
            return self.copy()
        return super().convert(mode, *args, **kwargs)

    def crop(self, box: Any = None) -> Image.Image:
        """A part, which waits too where it is one."""
        if self._im is None and box is not None:
            left, top, right, bottom = (round(edge) for edge in box)
            if 0 <= left < right <= self.width and 0 <= top < bottom <= self.height:
                return self._cut(self._inside((left, top, right, bottom)))
        return super().crop(box)

    def resize(
        self,
        size: Any,
        resample: int | None = None,
        box: Any = None,
        reducing_gap: float | None = None,
    ) -> Image.Image:
        """In another size; of a smaller image as far as that has as many pixels as are asked for."""
        box = tuple(box) if box is not None else (0, 0, *self.size)
        part = self._inside(box)
        scale = None if self._im is not None else scale_for(size, part, resample)
        if scale is None:
            return super().resize(size, resample, box, reducing_gap)
        width, height = self._whole
        image = Image.fromarray(self._decoded((height // scale, width // scale)))
        scale = round(width / image.width)  # 1 where simplejpeg cannot read it, and Pillow does
        left, top, right, bottom = (edge / scale for edge in part)
        smaller = (left, top, min(image.width, right), min(image.height, bottom))
        made = image.resize(size, resample, smaller, reducing_gap)
        made.info = dict(self.info)
        if Deferred.asked is not None:
            Deferred.asked.append(Smaller(self, made, resample, box))
        return made

    def _inside(self, part: Part) -> Part:
        left, top = self._part[:2]
        return left + part[0], top + part[1], left + part[2], top + part[3]

    def _cut(self, part: Part) -> Deferred:
        return Deferred(self._data, self._whole, self.info, part)

    def __reduce_ex__(self, protocol: Any) -> Any:
        """A plain image: who unpickles it need not know of this."""
        return operator.getitem, ((self._new(self.im),), 0)


def scale_for(size: Any, part: Part, resample: int | None) -> int | None:
    """The part of its size at which an image has at least ``size`` pixels in ``part`` of it; None where it
    has to be whole. Nearest pixels would be other ones.
    """
    if resample == Image.Resampling.NEAREST or not isinstance(size, Sequence):
        return None
    with contextlib.suppress(TypeError, ValueError):
        width, height = size
        left, top, right, bottom = part
        if width >= 1 and height >= 1:
            for scale in SCALES:
                if (right - left) >= width * scale and (bottom - top) >= height * scale:
                    return scale
    return None
