"""The shelves of one folder: opened one at a time, and what they may take of the disk together.

Data that has changed leaves the shelf of what it was behind. Such are told by when they were opened last, and
are removed where another needs their room, unless a process has them. Honest limit: what other processes
keep after a shelf was opened is not counted.
"""

from __future__ import annotations

import contextlib
import fcntl
import math
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from numpy.lib.format import read_array_header_1_0, read_magic

from outpace.serve.shelf import HELD, INDEX, Shelf

SHARE_OF_DISK = 0.5
NAME_LETTERS = 24
NAME = re.compile(rf"[0-9a-f]{{{NAME_LETTERS}}}")
"""of a shelf; nothing else in a folder is looked at"""


def opened(folder: Path, size: int, limit: int) -> Shelf:
    """The shelf in a folder; one that was given up, or lacks its index, is made anew, by one process."""
    with _opening(folder):
        if cut_short(folder / INDEX):
            shutil.rmtree(folder)
        shelf = Shelf(folder, size, limit)
        if shelf.void:
            shutil.rmtree(folder)
            shelf = Shelf(folder, size, limit)
        return shelf


def cut_short(index: Path) -> bool:
    """Whether it is not whole, as after a power failure."""
    if not index.exists():
        return False
    with index.open("rb") as file:
        try:
            read_magic(file)
            shape, _, kind = read_array_header_1_0(file)
        except ValueError:
            return True
        return index.stat().st_size < file.tell() + math.prod(shape) * kind.itemsize


def make_room(shelf: Shelf, need: int, limit: int | None) -> int:
    """Limit a shelf to what the others of its folder leave of ``limit`` bytes, or of what they take and half
    of the free disk.

    Where it does not get the ``need`` bytes that it lacks, others are removed, the one that was opened
    longest ago first. How many were.
    """
    sizes = {other: _bytes(other) for other in _others(shelf.folder)}
    if limit is None:
        free = shutil.disk_usage(shelf.folder.parent).free
        limit = shelf.taken + sum(sizes.values()) + int(SHARE_OF_DISK * free)
    need, gone = min(need, limit - shelf.taken), 0
    for other in tuple(sizes):
        if need <= max(0, limit - sum(sizes.values()) - shelf.taken):
            break
        if _removed(other):
            del sizes[other]
            gone += 1
    shelf.limit = limit - sum(sizes.values())
    return gone


def _others(folder: Path) -> list[Path]:
    found = (path.parent for path in folder.parent.glob(f"*/{INDEX}"))
    return sorted((f for f in found if NAME.fullmatch(f.name) and f != folder), key=_opened_at)


def _opened_at(shelf: Path) -> float:
    with contextlib.suppress(OSError):
        return (shelf / HELD).stat().st_mtime
    return 0.0


def _bytes(shelf: Path) -> int:
    found = 0
    with contextlib.suppress(OSError):  # another process removes it
        for path in shelf.iterdir():
            found += path.stat().st_size
    return found


def _removed(shelf: Path) -> bool:
    """Remove one that no process has; whether it is gone."""
    with contextlib.suppress(OSError), _opening(shelf), (shelf / HELD).open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(shelf)
    return not shelf.exists()


@contextlib.contextmanager
def _opening(folder: Path) -> Iterator[None]:
    """One process at a time."""
    with folder.with_name(f".{folder.name}.opening").open("ab") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)  # until it is closed
        yield
