"""Whether a packed folder is as it was written, and its source as it was when it was packed."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from outpace.errors import DataError
from outpace.serve import listing
from outpace.serve.meta import Meta, is_pack
from outpace.serve.packing import Progress
from outpace.serve.sources import open_source


@dataclass(frozen=True)
class Verified:
    """``source``: of "code" nothing is known."""

    meta: Meta
    damaged: tuple[str, ...]
    changed: tuple[str, ...]
    source: Literal["same", "changed", "gone", "code"]

    @property
    def right(self) -> bool:
        """Whether nothing is wrong."""
        return not self.damaged and not self.changed


def verify(folder: str | os.PathLike[str], progress: Progress) -> Verified:
    """Read everything. Raises DataError where that is not even possible."""
    path = Path(folder)
    if not is_pack(path):
        raise DataError(f"{path} is not what outpace packed", "name the DEST of `outpace pack`")
    store: Any = open_source(path)
    damaged = store.damaged(lambda done, total: progress("checking", done, total))
    if not (path / listing.FILE).exists():
        return Verified(store.meta, tuple(damaged), (), "code")
    progress("comparing with the source", 0, 1)
    then = listing.Listing.load(path)
    changed = listing.changed(then, folder=os.path.isdir(store.meta.source.path))
    if changed is None:
        return Verified(store.meta, tuple(damaged), (), "gone")
    return Verified(store.meta, tuple(damaged), tuple(changed), "changed" if changed else "same")
