"""Whether drawing samples moves the place in an open file, which threads and forks share, whatever holds it.

Open files of libraries in C are not known by their types. So a few samples are drawn, and the system is asked
where it is in the files that were open before. Honest limits: one that is opened while they are drawn is not
looked at, nor one that another thread reads meanwhile; where the system tells of no descriptors none is seen.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import time
from collections.abc import Callable
from typing import Any

from outpace.serve.held import all_kept, held_by
from outpace.serve.length_of import length_of
from outpace.serve.one_thread import one_thread
from outpace.serve.open_files import none_drawn

DESCRIPTORS = "/dev/fd"
PRINTED = (1, 2)
PAUSE_S, MOST_PAUSE_S = 0.005, 0.5
"""in which a file that nobody else reads stays where it is; up to the latter as long as a draw takes"""

File = tuple[int, int, int]
"""a descriptor, and its file's device and number"""


def moves_place(dataset: Any, draw: Callable[[int], Any]) -> bool:
    """Whether ``draw`` of an index moves one, tried at both ends of a data set and in its middle. After, that
    is as if none had been drawn.

    Other threads read too, so a file counts that is at rest before and after a draw, and is moved by two.
    """
    resting = _at_rest()
    size = length_of(dataset) if resting else 0
    if not size:
        return False
    with all_kept(held_by(source=dataset)), none_drawn(dataset), one_thread():
        return _moves_twice(draw, sorted({0, size // 2, size - 1}), resting)


def _moves_twice(draw: Callable[[int], Any], tried: list[int], resting: dict[File, int]) -> bool:
    once: set[File] = set()
    for turn in range(len(tried) + 1):
        if turn == len(tried) and not once:
            break
        began = time.perf_counter()
        with contextlib.suppress(Exception):  # told of when its turn comes
            draw(tried[turn % len(tried)])
        took_s = time.perf_counter() - began
        now = _places()
        moved = {file for file, place in resting.items() if now.get(file, place) != place}
        if not moved:
            continue
        time.sleep(min(max(PAUSE_S, took_s), MOST_PAUSE_S))
        later = _places()
        resting = {file: now[file] for file in resting.keys() & now if later.get(file) == now[file]}
        for file in moved & resting.keys():
            # Where all was read there is no more to move over, and of one sample there is no other.
            if file in once or len(tried) == 1 or _at_end(file, resting[file]):
                return True
            once.add(file)
    return False


def open_files() -> set[File]:
    """Those that the process may read now."""
    return set(_places())


def _at_rest() -> dict[File, int]:
    """Where the process is in the files that nobody reads just now."""
    before = _places()
    if not before:
        return {}
    time.sleep(PAUSE_S)
    now = _places()
    return {file: place for file, place in before.items() if now.get(file) == place}


def _at_end(file: File, place: int) -> bool:
    try:
        return os.fstat(file[0]).st_size == place
    except OSError:
        return False


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
