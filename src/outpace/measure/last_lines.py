"""Where a script was when it ended: in the midst of its training, or after it.

A script may judge by its result, by an ``assert`` or an exit code of its own. That is told from a training
that broke off by the lines in which an exception began that nobody caught, or in which `sys.exit` was
called.

Limits: what ends a script by ``raise SystemExit``, or with a `sys.exit` that it has imported by its name
before torch, leaves no trace.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator
from types import TracebackType
from typing import NoReturn

from outpace.measure.loops import is_within
from outpace.seams.where import Place, is_user_file, lines_of


class LastLines:
    """The user's lines in which the script ends."""

    def __init__(self) -> None:
        self.exit: Place = ()

    def note_exit(self) -> None:
        """Stand at ``sys.exit`` from here on."""
        original = sys.exit

        @functools.wraps(original)
        def exit_(*status: str | int | None) -> NoReturn:
            self.exit = lines_of(sys._getframe(1))
            original(*status)

        sys.exit = exit_

    def within(self, outermost: Place) -> bool | None:
        """Whether they are in the outermost loop of a training; None where nothing tells of them."""
        error = getattr(sys, "last_value", None)
        if error is None:
            return is_within(outermost, self.exit) if self.exit else None
        return any(is_within(outermost, lines) for lines in raised_in(error))


def raised_in(error: BaseException) -> list[Place]:
    """The user's lines of an exception, and of those that were being handled when it was raised."""
    return [lines_of_trace(one.__traceback__) for one in chain_of(error)]


def chain_of(error: BaseException) -> Iterator[BaseException]:
    """An exception, and those behind it: its causes, and what was being handled when it was raised."""
    known, ahead = set[int](), [error]
    while ahead:
        one = ahead.pop()
        if id(one) in known:  # an error may be its own cause
            continue
        known.add(id(one))
        yield one
        ahead += filter(None, (one.__cause__, one.__context__))


def lines_of_trace(trace: TracebackType | None) -> Place:
    """The user's lines of a traceback."""
    found = []
    while trace is not None:
        if is_user_file(trace.tb_frame.f_code.co_filename):
            found.append((trace.tb_frame.f_code, trace.tb_lineno))
        trace = trace.tb_next
    return tuple(found)
