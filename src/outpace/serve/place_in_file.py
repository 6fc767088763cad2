"""Whether drawing samples moves the place in an open file, which threads and forks share, whatever holds it.

Open files of libraries in C are not known by their types. So a few samples are drawn, and the system is asked
where it is in the files that were open before. Honest limits: one that is opened while they are drawn is not
looked at; where the system tells of no descriptors none is seen.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
from collections.abc import Callable
from typing import Any

from outpace.serve.held import all_kept, held_by
from outpace.serve.open_files import none_drawn

DESCRIPTORS = "/dev/fd"
PRINTED = (1, 2)

File = tuple[int, int, int]
"""a descriptor, and its file's device and number"""


def moves_place(dataset: Any, draw: Callable[[int], Any]) -> bool:
    """Whether ``draw`` of an index moves one, tried at both ends of a data set and in its middle. After, that
    is as if none had been drawn.
    """
    before = _places()
    size = _size(dataset) if before else 0
    if not size:
        return False
    with all_kept(held_by(source=dataset)), none_drawn(dataset):
        for index in sorted({0, size // 2, size - 1}):
            with contextlib.suppress(Exception):  # told of when its turn comes
                draw(index)
            now = _places()
            if any(now.get(file, place) != place for file, place in before.items()):
                return True
    return False


def _size(dataset: Any) -> int:
    try:
        return len(dataset)
    except TypeError:
        return 0


def _places() -> dict[File, int]:
    """Where the process is in each regular file that it may read, but for those that it prints to."""
    found: dict[File, int] = {}
    printed = set()
    with contextlib.suppress(OSError):
        for name in os.listdir(DESCRIPTORS):
            with contextlib.suppress(OSError):  # closed meanwhile, as that of the list itself is
                number = int(name)
                about = os.fstat(number)
                if number in PRINTED:
                    printed.add((about.st_dev, about.st_ino))
                mode = fcntl.fcntl(number, fcntl.F_GETFL) & os.O_ACCMODE
                if stat.S_ISREG(about.st_mode) and mode != os.O_WRONLY:
                    place = os.lseek(number, 0, os.SEEK_CUR)
                    found[number, about.st_dev, about.st_ino] = place
    return {file: place for file, place in found.items() if file[1:] not in printed}
