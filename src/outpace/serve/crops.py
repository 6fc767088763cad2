"""Random crops of encoded images, and what it would give to decode no more of them than is needed.

A JPEG can be decoded at a half or a quarter of its size, which is quicker; other scales are slower than
the whole. Where the crop is as large as that, the pixels are other ones, if similar: graded "changed"
(`outpace.serve.images`), so it is never chosen, only weighed and told. What lies below the crop is left
out in any case, where the file is coded from top to bottom. Honest limit: what lies above it and beside
it is decoded too, as the decoder has no way to leave that out.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, final

import numpy as np

from outpace.seams.generators import generators_kept
from outpace.serve.images import (
    SCALES,
    Box,
    Pixels,
    decode,
    decode_box,
    grade,
    jpeg_size,
    mirrored,
    random_box,
    resized_crop,
)
from outpace.serve.making import BatchMaker
from outpace.serve.order import generator

WEIGHED = 12
"""samples that both ways are tried on"""
WORTH = 0.9
"""of the time, from which on it is told"""


@final
class RandomCrop:
    """A `transform` for `outpace.Loader`: a random box of an image, size x size, half of them mirrored.

    A sample is a dict, its ``field`` an image file's bytes, or an image's height x width x 3 bytes of
    pixels, which become size x size x 3. The box is that of Szegedy et al. 2015 (`random_box`), the filter
    bilinear with antialiasing: by torch, at most two levels off Pillow's, or with ``exact`` by Pillow.
    ``scaled``: JPEGs are decoded at a half or a quarter where the box is large enough for it; other pixels,
    so a proof of quality is due. Raises DataError for what is not a whole image.
    """

    def __init__(
        self, size: int, field: str = "jpg", *, scaled: bool = False, exact: bool = False
    ) -> None:
        self.size, self.field, self.scaled, self.exact = size, field, scaled, exact

    def __repr__(self) -> str:
        return f"RandomCrop({self.size}, {self.field!r}, scaled={self.scaled}, exact={self.exact})"

    def __call__(self, sample: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
        """The sample with pixels in the field."""
        pixels, box = self._decoded(sample[self.field], rng)
        cut = resized_crop(pixels, box, self.size, exact=self.exact)
        return {**sample, self.field: mirrored(cut) if rng.random() < 0.5 else cut}

    def _decoded(self, data: bytes | Pixels, rng: np.random.Generator) -> tuple[Pixels, Box]:
        if not isinstance(data, bytes):
            height, width, _ = data.shape
            return data, random_box(height, width, rng)
        whole = jpeg_size(data) if self.scaled else None
        if whole is None:
            return decode_box(data, lambda height, width: random_box(height, width, rng))
        left, top, right, bottom = box = random_box(*whole, rng)
        least = min(right - left, bottom - top)
        scale = next((scale for scale in SCALES if least // scale >= self.size), None)
        if scale is None:
            return decode_box(data, lambda *_: box)
        pixels = decode(data, smallest=(whole[0] // scale, whole[1] // scale))
        scale = round(whole[0] / pixels.shape[0])  # Pillow decodes what simplejpeg cannot, whole
        return pixels, (left // scale, top // scale, -(-right // scale), -(-bottom // scale))


def weighed(maker: BatchMaker) -> str | None:
    """What decoding at a half or a quarter would give a maker that crops, in words; None if little."""
    transform, count = maker.transform, len(maker.source)
    if not isinstance(transform, RandomCrop) or transform.scaled or not count:
        return None
    other = RandomCrop(transform.size, transform.field, scaled=True, exact=transform.exact)
    places = sorted({i * count // WEIGHED for i in range(WEIGHED)})
    spent = [0.0, 0.0]

    def timed(which: int, crop: RandomCrop) -> Callable[[int], Pixels]:
        def cut(index: int) -> Pixels:
            sample, rng = samples[index], generator(maker.seed, 0, index)
            begun = time.perf_counter()
            found: Pixels = crop(sample, rng)[crop.field]
            spent[which] += time.perf_counter() - begun
            return found

        return cut

    try:
        with generators_kept():
            samples = {index: maker.prepared(index) for index in places}
        timed(0, transform)(places[0])  # the first is slower
        spent[0] = 0.0
        quality, levels = grade(timed(0, transform), timed(1, other), places)
    except Exception:
        return None  # told of when the sample's turn comes
    share = spent[1] / spent[0]
    if share > WORTH or quality == "exact":
        return None
    return (
        f"{other} would take {share:.2f} of the time of {transform}; its pixels are up to {levels} of 256 "
        f"levels off ({quality}), so a proof that the model is no worse comes first"
    )
