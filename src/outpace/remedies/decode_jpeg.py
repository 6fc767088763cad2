"""decode_jpeg: another JPEG decoder in Pillow's place."""

from __future__ import annotations

from dataclasses import replace
from typing import final

from outpace.records.evidence import Evidence
from outpace.records.input import Images
from outpace.records.trial import Settings
from outpace.remedies.base import Remedy, Verdict
from outpace.remedies.edits import add_import, insert_after_imports, open_images_by
from outpace.seams.setup import Setup

WORTH = 1.05
"""decoding must be this much faster for a trial"""
OPEN_JPEG = '''
def open_jpeg(path):
    """An image file as RGB with the pixels that Pillow would give."""
    if hasattr(path, "read"):
        image = Image.open(path)
        return image.convert("RGB")
    with open(path, "rb") as file:
        image = Image.open(file)
        if image.format != "JPEG" or image.mode not in ("RGB", "L"):
            return image.convert("RGB")
        file.seek(0)
        try:
            found = Image.fromarray(simplejpeg.decode_jpeg(file.read(), colorspace="RGB"))
        except ValueError:  # a broken file is Pillow's to tell of, or to read all the same
            file.seek(0)
            return Image.open(file).convert("RGB")
    found.info = dict(image.info)
    return found
'''


def jpegs(evidence: Evidence) -> Images | Verdict:
    """What was seen of images; a Verdict where none of them is a JPEG that simplejpeg could read."""
    images = evidence.input.images
    if images is None or not evidence.input.decode_s:
        return Verdict(False, "no images are decoded by Pillow")
    if not images.files:
        return Verdict(False, "none of the images that it decodes could be looked at")
    if images.identical is None:
        return Verdict(False, "simplejpeg is not installed, or none of the files is a JPEG")
    return images


@final
class DecodeJpeg(Remedy):
    """Decode JPEG files with simplejpeg where Pillow would, with the very same pixels.

    simplejpeg calls libjpeg-turbo with the same accurate transform as Pillow, and lets other
    threads run meanwhile. It was compared with Pillow on files of this data set, byte for byte.

    Helps where decoding binds. Files that it cannot read (CMYK, truncated) are left to Pillow.
    Keeps every bit.
    """

    name = "decode_jpeg"
    treats = ("parse",)
    keeps = "exact"
    stage = 0

    def applies(self, evidence: Evidence) -> Verdict:
        """Pixels must have been compared on the user's own files."""
        images = jpegs(evidence)
        if isinstance(images, Verdict):
            return images
        if not images.identical:
            return Verdict(False, "simplejpeg gives other pixels than Pillow on these files")
        ratio = images.simplejpeg_speedup
        reason = f"the same pixels on {images.files} files at {ratio:.2f}x of Pillow's speed"
        return Verdict(ratio >= WORTH, reason)

    def setup(self, base: Setup, settings: Settings) -> Setup:
        """Plain JPEG files are decoded by simplejpeg."""
        return replace(base, decoder="simplejpeg")

    def edit(self, source: str, evidence: Evidence, settings: Settings) -> str:
        """``Image.open(path).convert("RGB")`` goes through simplejpeg, where all files are JPEG."""
        images = evidence.input.images
        if images is None or images.jpeg_share < 1.0:
            return source
        changed = open_images_by(source, "open_jpeg")
        if changed == source:
            return source
        changed = add_import(insert_after_imports(changed, OPEN_JPEG), "simplejpeg")
        return add_import(changed, "PIL", "Image")
