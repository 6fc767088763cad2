"""decode_scaled: JPEG files at a half or a quarter, where the script makes them smaller at once."""

from __future__ import annotations

from dataclasses import replace
from typing import final

from outpace.records.evidence import Evidence
from outpace.records.trial import Settings
from outpace.remedies.base import Remedy, Verdict
from outpace.remedies.decode_jpeg import jpegs
from outpace.seams.setup import Setup

WORTH = 0.95
"""of the time of decoding, from which on it is worth other pixels"""


@final
class DecodeScaled(Remedy):
    """Decode JPEG files at a half or a quarter of their size where they are made smaller at once.

    A JPEG's blocks of eight by eight pixels can be decoded as blocks of four or two, in less time. An
    image waits until it is known what becomes of it: what is resized, or cropped and resized, is decoded
    at the smallest of these scales that still has as many pixels as are asked for. Everything else is
    decoded whole. Only samples of a DataLoader that a step has learnt from, and only where gradients are
    recorded: validation stays as it is.

    Helps where large photographs are decoded for a small input and there is no room to keep them; where
    there is, `cache_decoded` gives more, and every bit. Pixels differ by some levels of 256, as they would
    with another filter, and how far is told; so quality is proven. Harms where details of a few pixels
    tell classes apart. In a script: ``image.draft("RGB", (width, height))`` right after ``Image.open``.
    """

    name = "decode_scaled"
    treats = ("parse",)
    keeps = "numerics"
    stage = 1

    def applies(self, evidence: Evidence) -> Verdict:
        """Samples must have been drawn with it, and sooner."""
        images = jpegs(evidence)
        if isinstance(images, Verdict):
            return images
        if not images.scaled_share:
            return Verdict(
                False, "no image is made half as large, or less, as soon as it is opened"
            )
        left = 1 - images.scaled_saves_s / images.decode_s if images.decode_s else 1.0
        said = (
            f"{images.scaled_share:.0%} of the images are made half as large or less at once: decoded so "
            f"they take {max(0.0, left):.2f} of the time, and are up to {images.scaled_levels} of 256 "
            "levels off"
        )
        return Verdict(left <= WORTH, said)

    def setup(self, base: Setup, settings: Settings) -> Setup:
        """Images wait until their size is known; those that are kept are decoded whole."""
        if base.decoded_bytes or base.feed.fetch == "cache":
            return base
        return replace(base, scaled=True)
