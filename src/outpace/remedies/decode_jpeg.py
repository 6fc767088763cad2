"""decode_jpeg: another JPEG decoder in Pillow's place."""

from __future__ import annotations

from dataclasses import replace
from typing import final

from outpace.records.evidence import Evidence
from outpace.records.trial import Settings
from outpace.remedies.base import Remedy, Verdict
from outpace.seams.setup import Setup


@final
class DecodeJpeg(Remedy):
    """Decode JPEG files with simplejpeg where Pillow would, with the very same pixels.

    simplejpeg calls libjpeg-turbo with the same accurate transform as Pillow and lets other threads
    run meanwhile. It was compared with Pillow on files of this data set, byte for byte.

    Helps where decoding binds. Files that it cannot read (CMYK, truncated) are left to Pillow.
    """

    name = "decode_jpeg"
    treats = ("parse",)
    keeps = "exact"
    stage = 0

    def applies(self, evidence: Evidence) -> Verdict:
        """Pixels must have been compared on the user's own files."""
        images = evidence.input.images
        if images is None or not evidence.input.decode_s:
            return Verdict(False, "no images are decoded by Pillow")
        if images.identical is None:
            return Verdict(False, "simplejpeg is not installed, or none of the files is a JPEG")
        if not images.identical:
            return Verdict(False, "simplejpeg gives other pixels than Pillow on these files")
        ratio = images.simplejpeg_speedup
        return Verdict(
            ratio > 1.0, f"the same pixels on {images.files} files, {ratio:.2f}x of Pillow's speed"
        )

    def setup(self, base: Setup, settings: Settings) -> Setup:
        """Plain JPEG files are decoded by simplejpeg."""
        return replace(base, decoder="simplejpeg")
