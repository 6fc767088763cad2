"""Ending a ``for`` loop that nothing follows in its function, and that is over no range: it is over nothing.

As with ``for batch in enumerate(batches)`` as the last thing in a function: no line is there to move the
frame on to (`outpace.plan.leave`), and it counts through nothing that could be empty
(`outpace.plan.over_nothing`). Its head is run once more, and what the name at its beginning stands for is
nothing then, in that frame alone: called, looked into or iterated over it gives nothing, and so the script's
own is neither called nor drawn from.

Only where what else is in the head can be looked up again and calls nothing but ``len``. Not loops over a
DataLoader: it gives no more when the time is up, and they end by themselves, unless something begins with it
again and again (``cycle(loader)``).
"""

from __future__ import annotations

import ast
import ctypes
import re
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any, NamedTuple

from torch.utils.data import DataLoader

from outpace.measure.expressions import Unknown, evaluate, variable
from outpace.measure.syntax import name_of, names_in
from outpace.plan.over_nothing import DOES, MISSING, Trace, beyond, go_to
from outpace.seams.where import is_functions

STARTS_AGAIN = re.compile(r"cycle|infinite|endless|forever|repeat", re.IGNORECASE)
"""names of functions that go through a loader's batches again and again"""
COMPUTES = (ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.JoinedStr, ast.IfExp, ast.Starred)


class Over(NamedTuple):
    """A loop that can be ended so: the lines of its head, and the name that is nothing then."""

    head: range
    name: str
    local: bool


def over_of(loop: ast.For | ast.While, frame: FrameType) -> Over | None:
    """How a loop can be ended so; None where it cannot. Not to be asked by a trace function."""
    if not isinstance(loop, ast.For):
        return None
    (name, given), code = _parts(loop.iter), frame.f_code
    if name is None or any(_does(part, name) for part in given):
        return None
    if not is_functions(code) and frame.f_locals is not frame.f_globals:
        return None
    try:
        variable(frame, name)
    except Unknown:
        if name not in frame.f_builtins:
            return None
    if is_loader(loop.iter, frame):
        return None
    own = (*code.co_varnames, *code.co_cellvars, *code.co_freevars)
    local = name in (own if is_functions(code) else frame.f_locals)
    return Over(range(loop.lineno, (loop.iter.end_lineno or loop.lineno) + 1), name, local)


def _parts(over: ast.expr) -> tuple[str | None, list[ast.expr]]:
    """What is looked up first, ``trainer`` of ``trainer.batches(3)[1:]``, and what else is evaluated:
    arguments, and what is between brackets.
    """
    given: list[ast.expr] = []
    while not isinstance(over, ast.Name):
        if isinstance(over, ast.Call):
            given += [*over.args, *(keyword.value for keyword in over.keywords)]
            over = over.func
        elif isinstance(over, ast.Subscript):
            given.append(over.slice)
            over = over.value
        elif isinstance(over, ast.Attribute):
            over = over.value
        else:
            return None, given
    return over.id, given


def _does(given: ast.expr, name: str) -> bool:
    """Whether anything is called, but for a length, or computed of what is to be nothing."""
    return any(
        (isinstance(part, DOES) and not _is_length(part))
        or (isinstance(part, COMPUTES) and name in names_in(part))
        for part in ast.walk(given)
    )


def _is_length(part: ast.AST) -> bool:
    return isinstance(part, ast.Call) and isinstance(part.func, ast.Name) and part.func.id == "len"


def is_loader(over: ast.expr, frame: FrameType) -> bool:
    """Whether it is a DataLoader that is iterated over, whatever is around it that ends with it."""
    return names_loader(over, frame) and not starts_again(over, frame)


def starts_again(over: ast.expr, frame: FrameType) -> bool:
    """Whether a function that is given a DataLoader goes through it again and again, by its name."""
    return any(
        STARTS_AGAIN.search(name_of(part.func))
        and any(names_loader(given, frame) for given in part.args)
        for part in ast.walk(over)
        if isinstance(part, ast.Call)
    )


def names_loader(over: ast.expr, frame: FrameType) -> bool:
    """Whether a DataLoader is in it."""
    for part in ast.walk(over):
        if isinstance(part, ast.Name | ast.Attribute):
            try:
                value = evaluate(part, frame)
            except Exception:
                continue
            if isinstance(value, DataLoader):
                return True
    return False


def begin_over_none(over: Over, frame: FrameType, then: Trace | None) -> Trace:
    """Have the loop's head be run once more, over nothing; ``then`` traces what follows. ValueError where
    that cannot be.

    To be called, and what it returns set, by a trace function.
    """
    names: Any = frame.f_locals if over.local else frame.f_globals
    before = names.get(over.name, MISSING)
    given = before if before is not MISSING else frame.f_builtins.get(over.name, MISSING)
    if given is MISSING:
        raise ValueError("its name stands for nothing any more")
    go_to(frame, over.head[0])
    nothing = Nothing(frame, given)
    _put(over, frame, nothing)

    def undo(frame: FrameType) -> None:
        nothing.forget()
        _put(over, frame, before)

    return beyond(over.head, undo, then)


def _put(over: Over, frame: FrameType, value: Any) -> None:
    """Have the name stand for it; MISSING: for nothing of the script's own."""
    names: Any = frame.f_locals if over.local else frame.f_globals
    if value is MISSING:
        names.pop(over.name, None)
    else:
        names[over.name] = value
    # Before 3.13 a function's variables are a copy, which is made anew whenever somebody looks.
    write = getattr(ctypes.pythonapi, "PyFrame_LocalsToFast", None)
    if over.local and write is not None:
        write(ctypes.py_object(frame), ctypes.c_int(0))


class Nothing:
    """To one frame that calls it, looks into it or iterates over it, and to others what it stands for."""

    def __init__(self, frame: FrameType, given: Any) -> None:
        self.__dict__.update({"_frame": frame, "_given": given})

    def forget(self) -> None:
        """Hold the frame no longer."""
        self.__dict__["_frame"] = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Of a function, or a class."""
        return self if sys._getframe(1) is self._frame else self._given(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        """Of an object, or a module."""
        return self if sys._getframe(1) is self._frame else getattr(self._given, name)

    def __getitem__(self, key: Any) -> Any:
        """Of a list, or a dict."""
        return self if sys._getframe(1) is self._frame else self._given[key]

    def __len__(self) -> int:
        """None."""
        return 0 if sys._getframe(1) is self._frame else len(self._given)

    def __iter__(self) -> Iterator[Any]:
        """No items."""
        return iter(()) if sys._getframe(1) is self._frame else iter(self._given)
