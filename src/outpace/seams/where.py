"""Which line of the user's code is running."""

from __future__ import annotations

import ast
import dis
import importlib.util
import inspect
import os
import sys
import sysconfig
from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise
from types import CodeType, FrameType
from typing import Any

Place = tuple[tuple[CodeType, int], ...]
"""lines of the user's, each in the function that it belongs to"""
_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_INSTALLED = ("site-packages", "dist-packages")
"""folders of packages, of whichever interpreter"""
BETWEEN = ("PRECALL", "PUSH_NULL")
"""instructions between a function's name and its call, besides those that make its arguments"""


def _torch() -> tuple[str, ...]:
    """Wherever it is."""
    torch = importlib.util.find_spec("torch")
    folder = os.path.dirname(torch.origin) if torch is not None and torch.origin else ""
    return tuple(each + os.sep for each in {folder, os.path.realpath(folder)} if folder)


def _libraries() -> tuple[str, ...]:
    """The standard library, this interpreter's packages, and torch."""
    folders = {sysconfig.get_paths()[key] for key in ("stdlib", "purelib", "platlib")}
    folders |= {os.path.realpath(folder) for folder in folders}
    return (*(folder + os.sep for folder in folders), *_torch())


_TORCH = _torch()
_LIBRARIES = _libraries()


@lru_cache(maxsize=4096)
def is_user_file(filename: str) -> bool:
    """Whether a file is the user's: neither ours, nor the standard library's, nor an installed package's.

    Nor one that `torch.compile` wrote.
    """
    if not filename or filename.startswith("<") or any(each in filename for each in _INSTALLED):
        return False
    path = _absolute(filename)
    if f"{os.sep}torchinductor_" in path:
        return False
    generated = os.environ.get("TORCHINDUCTOR_CACHE_DIR")
    if generated and path.startswith(_absolute(generated) + os.sep):
        return False
    return not path.startswith(_OURS) and not path.startswith(_LIBRARIES)


@lru_cache(maxsize=4096)
def is_package_file(filename: str) -> bool:
    """Whether a file is an installed package's, and neither torch's nor ours."""
    if not any(each in filename for each in _INSTALLED):
        return False
    path = _absolute(filename)
    return not path.startswith(_OURS) and not path.startswith(_TORCH)


def _absolute(filename: str) -> str:
    try:
        return os.path.abspath(filename)
    except OSError:  # the working directory is gone
        return filename


def first_line(statement: ast.stmt) -> int:
    """Where a statement begins: a function or a class at its first decorator."""
    decorators: list[ast.expr] = getattr(statement, "decorator_list", [])
    return min([statement.lineno, *(each.lineno for each in decorators)])


def user_frames(frame: FrameType | None) -> Iterator[FrameType]:
    """The frames of the user's code, from ``frame`` outwards."""
    while frame is not None:
        if is_user_file(frame.f_code.co_filename):
            yield frame
        frame = frame.f_back


def lines_of(frame: FrameType | None) -> Place:
    """The user's lines that are running in a frame and its callers, the innermost first."""
    return tuple((each.f_code, each.f_lineno) for each in user_frames(frame))


def user_frame(frame: FrameType | None) -> FrameType | None:
    """The innermost of them."""
    return next(user_frames(frame), None)


def locals_of(frame: FrameType) -> dict[str, Any] | None:
    """What the names of a frame stand for; None where to look would change what the script sees.

    Up to Python 3.12 what a function's frame shows is one dict, which its own `locals()` gave it as well, and
    which keeps what the function lets go: its variables are taken out again. Names that `exec` has made are
    nowhere else.
    """
    if not is_functions(frame.f_code):
        return frame.f_locals  # a module's namespace itself
    # What is shown to a trace function, as to a debugger's, is written back to the variables after it.
    traced = frame.f_trace is not None and sys.gettrace() is not None
    if traced or takes_locals(frame.f_code):
        return None
    shown = frame.f_locals
    found = dict(shown)
    if type(shown) is dict:
        code = frame.f_code
        for name in (*code.co_varnames, *code.co_cellvars, *code.co_freevars):
            shown.pop(name, None)
    return found


def is_functions(code: CodeType) -> bool:
    """Whether it has variables of its own; a module's and a class's share their namespace."""
    return bool(code.co_flags & inspect.CO_OPTIMIZED)


@lru_cache(maxsize=256)
def takes_locals(code: CodeType) -> bool:
    """Whether a function calls ``locals()``, or ``vars()`` of nothing, which gives the same."""
    if {"locals", "vars"}.isdisjoint(code.co_names):
        return False
    made = [each for each in dis.get_instructions(code) if each.opname not in BETWEEN]
    return any(
        each.opname == "LOAD_GLOBAL"
        and (each.argval == "locals" or (each.argval == "vars" and not _is_given(after)))
        for each, after in pairwise(made)
    )


def _is_given(called: dis.Instruction) -> bool:
    """Whether what comes after a function's name makes something to give it."""
    return called.opname != "CALL" or called.arg != 0


def place(frame: FrameType | None) -> str | None:
    """``file:line`` of a frame, relative to the working directory where that is shorter."""
    if frame is None:
        return None
    return f"{short(frame.f_code.co_filename)}:{frame.f_lineno}"


@lru_cache(maxsize=4096)
def short(filename: str) -> str:
    """A file's name as a user would write it from the working directory."""
    try:
        relative = os.path.relpath(filename)
    except OSError:  # the working directory is gone
        return filename
    return filename if relative.startswith("..") else relative


def caller() -> str | None:
    """``file:line`` of the user's line that is calling into the seams."""
    return place(user_frame(sys._getframe(1)))
