"""cache_decoded: keep decoded images in memory."""

from __future__ import annotations

from dataclasses import replace
from typing import final

from outpace.records.evidence import Evidence
from outpace.records.trial import Settings
from outpace.remedies.base import Remedy, Verdict
from outpace.remedies.cache_samples import free_for_caches
from outpace.remedies.edits import add_import, insert_after_imports, open_images_by
from outpace.remedies.model import decoded_bytes, kept_shares
from outpace.seams.setup import AS_IS, Setup

LEAST_KEPT = 0.3
"""share of the images that is to be kept, or the cache is not worth its memory"""

OPENED = '''
@functools.cache
def opened_once(path):
    """An image file as RGB, once."""
    return Image.open(path).convert("RGB")


def opened(path):
    """The same, to be changed at will; what is no path is not kept."""
    if hasattr(path, "read"):
        image = Image.open(path)
        return image.convert("RGB")
    return opened_once(path).copy()
'''


@final
class CacheDecoded(Remedy):
    """Keep decoded images in memory, by path, size and time of change.

    A file is decoded in the first epoch only; later it is opened and given the kept pixels, so
    that random crops and flips come out the same, bit for bit. Costs four bytes a pixel, up to
    half of the memory that is free, or less as `outpace tune --ram` says, in all processes together:
    each keeps what it decodes itself. With `--disk` the pixels of images that memory has no room for go to
    the folder for temporary files, three bytes a pixel. Images that are read from memory, an archive's say,
    are not kept: nothing tells them from each other.

    Helps where decoding binds and the run has more than one epoch. Harms nothing but memory.
    """

    name = "cache_decoded"
    treats = ("parse", "storage")
    keeps = "exact"
    stage = 1

    def applies(self, evidence: Evidence) -> Verdict:
        """Images must be decoded again each epoch, and enough of them be kept."""
        data = evidence.input
        if data.images is None or not data.decode_s or not data.samples:
            return Verdict(False, "no images are decoded by Pillow")
        if not data.images.files or not data.images.file_share:
            return Verdict(False, "its images are not read from files of their own")
        if data.epochs is not None and data.epochs < 2:
            return Verdict(False, "each image is decoded once: the run has one epoch")
        if data.workers and not data.persistent:
            return Verdict(
                False, "each epoch's workers are new ones, that have decoded nothing yet"
            )
        need, limit = decoded_bytes(evidence), self.limit(evidence)
        disk = evidence.cache_limits.disk_bytes or 0
        said = f"decoded images take {need / 2**30:.1f} GiB, {limit / 2**30:.1f} may be kept"
        if disk:
            said += f", and {disk / 2**30:.1f} on disk"
        kept = sum(kept_shares(evidence, self.setup(AS_IS, self.settings(evidence))))
        return Verdict(bool(limit) and kept >= LEAST_KEPT, said)

    def limit(self, evidence: Evidence) -> int:
        """Bytes of memory that the cache may take."""
        return free_for_caches(evidence)

    def settings(self, evidence: Evidence) -> Settings:
        """The limits in MiB."""
        found: Settings = {"limit_mib": self.limit(evidence) // 2**20}
        if evidence.cache_limits.disk_bytes:
            found["disk_mib"] = evidence.cache_limits.disk_bytes // 2**20
        return found

    def setup(self, base: Setup, settings: Settings) -> Setup:
        """Decoded pixels are kept up to the limits."""
        if base.feed.fetch == "cache":
            return base  # Whole samples are kept: their images are not needed again.
        return replace(
            base,
            scaled=False,
            decoded_bytes=int(settings["limit_mib"]) * 2**20,
            decoded_disk_bytes=int(settings.get("disk_mib", 0)) * 2**20,
        )

    def edit(self, source: str, evidence: Evidence, settings: Settings) -> str:
        """``Image.open(path).convert("RGB")`` goes through a cache, which has no limit: only where all that
        each process decodes may be kept.
        """
        processes = max(1, evidence.input.workers)
        if processes * decoded_bytes(evidence) > int(settings["limit_mib"]) * 2**20:
            return source
        changed = open_images_by(source, "opened")
        if changed == source:
            return source
        changed = add_import(insert_after_imports(changed, OPENED), "functools")
        return add_import(changed, "PIL", "Image")
