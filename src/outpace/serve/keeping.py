"""Whether prepared samples are to be kept, and under which name: by what they are, not by where.

The name is made of the samples themselves, some of them prepared anew: so another data set, another
size or another way to prepare them is another shelf, and a restart finds its own.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from pathlib import Path

from outpace.errors import UsageError
from outpace.serve.batches import same_bits
from outpace.serve.making import BatchMaker
from outpace.serve.shelf import Shelf, packed

NAMED_BY = 8
"""samples that are prepared for the name"""
SHARE_OF_DISK = 0.5


def shelf_for(maker: BatchMaker, parent: Path | None, limit: int | None) -> tuple[Shelf, str]:
    """The shelf of a maker's samples, and what there is to say of it.

    Raises UsageError where the same sample, prepared twice, is not the same.
    """
    size = len(maker.source)
    name = hashlib.sha256(str(size).encode())
    bytes_of_some = 0
    for i in range(min(NAMED_BY, size)):
        index = i * (size - 1) // max(1, NAMED_BY - 1)
        sample, again = maker.prepared(index), maker.prepared(index)
        if not same_bits(sample, again):
            raise UsageError(
                f"{maker.where(index)} prepared twice is not the same: kept, it would stay as it was once",
                "give what is random to transform(sample, rng) and keep what prepare(sample) gives",
            )
        data = packed(sample)
        bytes_of_some += len(data)
        name.update(data)
    parent = parent if parent is not None else default_folder()
    parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    if limit is None:
        limit = int(SHARE_OF_DISK * shutil.disk_usage(parent).free)
    shelf = Shelf(parent / name.hexdigest()[:24], size, limit)
    need = bytes_of_some / max(1, min(NAMED_BY, size)) * size
    said = f"{len(shelf):,} of {size:,} samples are kept in {shelf.folder}"
    if need > limit:
        said += f"; of {need / 2**30:.1f} GiB there is room for {limit / 2**30:.1f}"
    return shelf, said


def default_folder() -> Path:
    """A folder of the user's own that does not outlive the machine's start."""
    user = os.getuid() if hasattr(os, "getuid") else "user"
    return Path(tempfile.gettempdir()) / f"outpace-kept-{user}"
