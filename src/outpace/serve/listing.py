"""The files of a data set with sizes and times: what it was when it was packed, and whether it still is.

A file that was changed with its size and time kept is not noticed. Hidden files and folders (with a
dot in front) are no part of a data set.
"""

from __future__ import annotations

import hashlib
import itertools
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from outpace.serve.meta import Skipped, load_arrays
from outpace.serve.parts import told_apart
from outpace.serve.reading import unreadable
from outpace.serve.strings import PackedStrings

FILE = "listing.npz"


@dataclass(frozen=True)
class Listing:
    """Files below ``root``; size and time are -1 of one that cannot be looked at."""

    root: str
    names: PackedStrings
    sizes: NDArray[np.int64]
    times: NDArray[np.int64]
    """of the last change, in ns"""

    @property
    def bytes(self) -> int:
        """Of all files."""
        return int(self.sizes.clip(min=0).sum())

    def digest(self) -> str:
        """SHA-256 of names, sizes and times."""
        found = hashlib.sha256()
        for part in (self.names.data, self.names.offsets, self.sizes, self.times):
            found.update(part.tobytes())
        return found.hexdigest()

    def save(self, folder: Path) -> None:
        """Into a packed folder."""
        np.savez(
            folder / FILE,
            root=np.frombuffer(os.fsencode(self.root), np.uint8),
            data=self.names.data,
            offsets=self.names.offsets,
            sizes=self.sizes,
            times=self.times,
        )

    @staticmethod
    def load(folder: Path) -> Listing:
        """Raises DataError where it cannot be read."""
        kept = load_arrays(folder / FILE)
        try:
            names = PackedStrings.of(kept["data"], kept["offsets"])
            root = os.fsdecode(kept["root"].tobytes())
            return Listing(root, names, kept["sizes"], kept["times"])
        except KeyError as error:
            raise unreadable(folder / FILE, error) from error


def names_below(root: str, skipped: list[Skipped] | None = None) -> list[str]:
    """Every file below a folder, links followed, sorted by its path from there.

    Raises DataError for a folder that cannot be read, or notes it in ``skipped``.
    """

    def failed(error: OSError) -> None:
        if skipped is None:
            raise unreadable(error.filename or root, error) from error
        skipped.append(Skipped(str(error.filename), error.strerror or str(error)))

    found = []
    for folder, inside, names in os.walk(root, onerror=failed, followlinks=True):
        inside[:] = [
            n for n in inside if n[0] != "." and not _leads_up(os.path.join(folder, n), root)
        ]
        below = os.path.relpath(folder, root)
        prefix = "" if below == "." else f"{below}/"
        found += [prefix + name for name in names if name[0] != "."]
    return sorted(found)


def _leads_up(folder: str, root: str) -> bool:
    """Whether a link leads to a folder that it lies in, by the links on the way from the root too."""
    if not os.path.islink(folder):
        return False
    target, steps = os.path.realpath(folder), Path(os.path.relpath(folder, root)).parts[:-1]
    ways = itertools.accumulate(steps, os.path.join, initial=root)
    return any(Path(os.path.realpath(way)).is_relative_to(target) for way in ways)


def list_files(root: str, names: Sequence[str]) -> Listing:
    """Look at every file."""
    seen = np.full((len(names), 2), -1, np.int64)
    for row, name in enumerate(names):
        try:
            state = os.stat(os.path.join(root, name))
        except OSError:
            continue  # Whoever reads it tells why it cannot be.
        seen[row] = state.st_size, state.st_mtime_ns
    packed = names if isinstance(names, PackedStrings) else PackedStrings(names)
    return Listing(root, packed, seen[:, 0].copy(), seen[:, 1].copy())


def changed(then: Listing, *, folder: bool) -> list[str] | None:
    """Files that are gone, other than they were, or, in a ``folder``, new; None if all are gone."""
    now = list_files(then.root, then.names)
    if bool((now.times == -1).all()):
        return None
    other = (now.sizes != then.sizes) | (now.times != then.times)
    found = [then.names[int(row)] for row in np.flatnonzero(other)]
    if folder:
        _, data = told_apart(names_below(then.root, []))
        found += sorted(set(data) - set(then.names))
    return found
