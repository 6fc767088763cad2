"""``open`` in a run that is thrown away: the file object is as ever, its bytes are elsewhere.

It keeps the name that the target gave, and an error names what the target named.
"""

from __future__ import annotations

import _io
import functools
import posix
from collections.abc import Callable
from typing import Any

from outpace.seams.writes.overlay import WRITING, Overlay

Call = Callable[..., Any]

READS = frozenset({"r", "rb", "rt", "br", "tr"})


def as_given(error: OSError, *given: Any) -> None:
    """Have an error name what the target named."""
    error.filename = given[0]
    if len(given) > 1:
        error.filename2 = given[1]


def file_open(overlay: Overlay) -> Call:
    """``open`` and ``io.open``."""
    size = overlay.size

    @functools.wraps(_io.open)
    def open(  # noqa: A001
        file: Any,
        mode: str = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        closefd: bool = True,
        opener: Any = None,
    ) -> Any:
        changes = mode not in READS
        if (
            (size[0] or changes)
            and not isinstance(file, int)
            and (changes or overlay.readable(file) is not file)
        ):
            opener = _opener(overlay, opener)
        return _io.open(file, mode, buffering, encoding, errors, newline, closefd, opener)

    return open


def _opener(overlay: Overlay, given: Any) -> Call:
    """Opens where the bytes are, so that the file object keeps the name that it was given."""

    def opener(path: Any, flags: int) -> int:
        try:
            if flags & WRITING:
                place = overlay.opened(overlay.canonical(overlay.text(path)), flags)
            else:
                place = overlay.readable(path)
            fd: int = given(place, flags) if given is not None else posix.open(place, flags, 0o666)
        except OSError as error:
            as_given(error, path)
            raise
        return fd

    return opener


def descriptor_open(overlay: Overlay) -> Call:
    """``os.open``."""

    @functools.wraps(posix.open)
    def open(path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:  # noqa: A001
        try:
            if flags & WRITING:
                place = overlay.opened(overlay.canonical(overlay.text(path, dir_fd)), flags)
            elif overlay.size[0]:
                place = overlay.readable(path, dir_fd)
            else:
                return posix.open(path, flags, mode, dir_fd=dir_fd)
            return posix.open(place, flags, mode)
        except OSError as error:
            as_given(error, path)
            raise

    return open
