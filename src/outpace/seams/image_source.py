"""What an image that Pillow has opened is read from.

By its path, or from a file that the script has opened itself, as torchvision's ``ImageFolder`` does; or from
bytes in memory, as those of an archive are.
"""

from __future__ import annotations

import io
import os
from typing import Any


def source_of(image: Any) -> str | bytes | None:
    """The path of its file, or its bytes; None of anything else."""
    name = getattr(image, "filename", "")
    if isinstance(name, str) and name:
        return name
    opened: Any = getattr(image, "fp", None)
    if is_plain_file(opened):
        return opened.name if isinstance(opened.name, str) else None
    return opened.getvalue() if type(opened) is io.BytesIO and not opened.closed else None


def is_plain_file(opened: Any) -> bool:
    """Whether it is a file from its begin to its end, as `open` gives it: what else has a number of a file
    may be a part of one.
    """
    raw = opened.raw if type(opened) is io.BufferedReader else opened
    return type(raw) is io.FileIO and not raw.closed


def file_of(image: Any) -> tuple[str, os.stat_result] | None:
    """What tells the file that an opened image is read from, and how that is now; None for none."""
    name, opened = getattr(image, "filename", ""), getattr(image, "fp", None)
    named = isinstance(name, str | os.PathLike) and bool(name)
    if not named and not is_plain_file(opened):
        return None
    try:
        state = os.fstat(opened.fileno())  # type: ignore[union-attr]
    except (AttributeError, OSError, ValueError):
        return None
    return (os.fspath(name) if named else f"{state.st_dev}:{state.st_ino}"), state
