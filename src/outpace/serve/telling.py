"""What is told of a sample that cannot be read: its place, the reason and what to do, as one error."""

from __future__ import annotations

import contextlib
import traceback
from typing import Any

from outpace.errors import DataError, OutpaceError

SKIP = "on_error='skip' leaves such samples out and counts them"


def place_of(source: Any, index: int) -> str | None:
    """Where a source says that a sample comes from. None of others, such as a tensor, whose ``where`` is
    something else.
    """
    with contextlib.suppress(Exception):
        found = source.where(index)
        return found if isinstance(found, str) else None
    return None


def short(error: BaseException) -> str:
    """An error in a line."""
    return error.message if isinstance(error, OutpaceError) else f"{type(error).__name__}: {error}"


def with_trace(message: str, hint: str | None = None) -> DataError:
    """An error that keeps where the one that is handled came from, over a process border too."""
    told = DataError(message, hint)
    told.add_note(traceback.format_exc())
    return told


def of_sample(where: str, index: int, error: Exception) -> DataError:
    """The error of the sample at ``index``, which is called ``where``."""
    said = short(error)
    if where not in said:
        number = "" if where.endswith(f"sample {index}") else f" (sample {index})"
        said = f"{where}{number}: {said}"
    own = f"{error.hint}; " if isinstance(error, OutpaceError) and error.hint else ""
    return with_trace(said, own + SKIP)
