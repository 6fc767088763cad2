"""Ending a loop that nothing follows in its function: it is begun once more, over nothing.

No line is there to move the frame on to, as for ``break`` (`outpace.plan.leave`). But a loop over a range may
begin anew at its own line, with a `range` that is empty for that once and in that frame alone. It then ends
as it always does: with the end of a ``with`` or ``try`` around it, an ``else``, or its function's.

Only where the range's limits are names and numbers, which are looked up again and call nothing, as does what
else progress bars and `enumerate` around it are given; these are made a second time. Not loops over anything
else, and no ``while``.
"""

from __future__ import annotations

import ast
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import Any

from outpace.measure.heads import counter_of, is_range
from outpace.seams.where import is_functions

Trace = Callable[[FrameType, str, Any], Any]
MISSING = object()
DOES = (ast.Call, ast.NamedExpr, ast.Await, ast.Yield, ast.YieldFrom)


@dataclass(frozen=True)
class Anew:
    """A loop that can be ended so: the lines of its head, and the name of what it calls for its range."""

    head: range
    name: str


def anew(loop: ast.For | ast.While, frame: FrameType) -> Anew | None:
    """How a loop can be ended so; None where it cannot. Not to be asked by a trace function."""
    if not isinstance(loop, ast.For):
        return None
    name = counter_of(loop, frame)
    if name is None or does_more(loop.iter):
        return None
    code = frame.f_code
    own = is_functions(code) and name in (*code.co_varnames, *code.co_cellvars, *code.co_freevars)
    head = range(loop.lineno, (loop.iter.end_lineno or loop.lineno) + 1)
    return None if own else Anew(head, name)


def does_more(over: ast.expr) -> bool:
    """Whether what wraps a range is given more than can be looked up once more."""
    while isinstance(over, ast.Call) and not is_range(over):
        given = [*over.args[1:], *(keyword.value for keyword in over.keywords)]
        if any(isinstance(part, DOES) for each in given for part in ast.walk(each)):
            return True
        over = over.args[0]
    return False


def begin_over_nothing(loop: Anew, frame: FrameType, then: Trace | None) -> Trace:
    """Begin the loop anew, over nothing; ``then`` traces what follows. ValueError where that cannot be.

    To be called, and what it returns set, by a trace function, at a line of the loop's head.
    """
    empty(frame, loop.name)
    try:
        go_to(frame, loop.head[0])
    except ValueError:
        restore(frame, loop.name)
        raise
    return beyond(loop.head, lambda frame: restore(frame, loop.name), then)


def beyond(head: range, undo: Callable[[FrameType], None], then: Trace | None) -> Trace:
    """Traces a frame to beyond a loop's head, where ``undo`` is called; ``then`` traces what follows."""

    def looked(frame: FrameType, event: str, arg: Any) -> Any:
        if event == "line" and frame.f_lineno in head:
            return looked
        undo(frame)
        if then is None:
            sys.settrace(None)
            return None
        return then(frame, event, arg)

    return looked


def go_to(frame: FrameType, line: int) -> None:
    """Have a frame go on at another line, within its trace function; ValueError where it cannot."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of names without a value, since 3.12
        frame.f_lineno = line  # type: ignore[misc]


class Empty:
    """What stands for `range` meanwhile: it is empty for one frame, and as ever for all others."""

    def __init__(self, frame: FrameType, before: Any, given: Any) -> None:
        self.frame: FrameType | None = frame
        self.before, self.given = before, given

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """No turns; of `trange` that is a range as well."""
        here = sys._getframe(1) is self.frame
        return () if here else self.given(*args, **kwargs)


def empty(frame: FrameType, name: str) -> None:
    """Have a global name stand for no turns in this frame."""
    names = frame.f_globals
    before = names.get(name, MISSING)
    given = before if before is not MISSING else frame.f_builtins[name]
    names[name] = Empty(frame, before, given)


def restore(frame: FrameType, name: str) -> None:
    """Have it stand for what it stood for."""
    found = frame.f_globals.get(name)
    if not isinstance(found, Empty):
        return
    found.frame = None
    if found.before is MISSING:
        del frame.f_globals[name]
    else:
        frame.f_globals[name] = found.before
