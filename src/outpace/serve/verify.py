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
from outpace.serve.remote import is_remote
from outpace.serve.sources import open_source
from outpace.serve.tars import Tars


@dataclass(frozen=True)
class Verified:
    """``source``: of "code" and of what is behind an "address" nothing is known. ``missing``: tars of an
    index that cannot be opened where they were.
    """

    meta: Meta
    damaged: tuple[str, ...]
    changed: tuple[str, ...]
    source: Literal["same", "changed", "gone", "code", "address"]
    missing: tuple[str, ...] = ()

    @property
    def right(self) -> bool:
        """Whether nothing is wrong."""
        return not self.damaged and not self.changed and not self.missing


def verify(folder: str | os.PathLike[str], progress: Progress) -> Verified:
    """Read everything. Raises DataError where that is not even possible."""
    path = Path(folder)
    if not is_pack(path):
        raise DataError(f"{path} is not what outpace packed", "name the DEST of `outpace pack`")
    store: Any = open_source(path)
    meta: Meta = store.meta
    damaged = tuple(store.damaged(lambda done, total: progress("checking", done, total)))
    missing = tuple(store.gone()) if isinstance(store, Tars) else ()
    if not (path / listing.FILE).exists():
        return Verified(meta, damaged, (), "address" if is_remote(meta.source.path) else "code")
    progress("comparing with the source", 0, 1)
    then = listing.Listing.load(path)
    changed = listing.changed(then, folder=os.path.isdir(meta.source.path))
    if changed is None:
        return Verified(meta, damaged, (), "gone", missing)
    changed = [name for name in changed if os.path.join(then.root, name) not in missing]
    return Verified(meta, damaged, tuple(changed), "changed" if changed else "same", missing)
