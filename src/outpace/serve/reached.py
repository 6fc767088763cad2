"""The functions that run where an item is asked for or a batch is collated, as far as names tell.

From ``__getitem__``, or a function, on to what they name: methods and attributes of the same object, and
functions of the user's modules. What a library calls by other names is not found.
"""

from __future__ import annotations

import contextlib
import functools
from collections import deque
from collections.abc import Iterator, Mapping
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

from outpace.seams.where import is_user_file

ENTRIES = {"__getitem__", "__call__"}
MOST_FUNCTIONS, MOST_PARTS = 500, 64
"""functions that are found, and parts of a list that are looked into"""


class Found(NamedTuple):
    """A function, and the object that it is a method of, or None."""

    function: FunctionType
    owner: Any


def reached(*makers: Any) -> Iterator[Found]:
    """The functions that data sets and collate functions run, each once."""
    ahead = deque(found for maker in makers for found in _run_by(maker))
    seen: set[tuple[int, int]] = set()
    while ahead and len(seen) < MOST_FUNCTIONS:
        found = ahead.popleft()
        if (key := (id(found.function), id(found.owner))) not in seen:
            seen.add(key)
            yield found
            ahead += _named_by(found)


def _run_by(thing: Any) -> Iterator[Found]:
    """What runs where something is called, or an item of it is asked for."""
    match thing:
        case FunctionType():
            yield Found(thing, None)
        case MethodType():
            yield from _methods(thing.__self__, {thing.__name__})
        case functools.partial():
            yield from _run_by(thing.func)
        case list() | tuple() | dict():
            parts = list(thing.values() if isinstance(thing, dict) else thing)
            for part in parts[:MOST_PARTS]:
                yield from _run_by(part)
        case type() | ModuleType():
            return  # making an object, or nothing
        case _:
            yield from _methods(thing, ENTRIES)


def _methods(owner: Any, names: set[str]) -> Iterator[Found]:
    """Those of an object's class and of the classes that it is made of: one may ask the next."""
    for kind in type(owner).__mro__:
        for name in names & vars(kind).keys():
            match vars(kind)[name]:
                case FunctionType() as function:
                    yield Found(function, owner)
                case property(fget=FunctionType() as function):
                    yield Found(function, owner)
                case functools.cached_property(func=FunctionType() as function):
                    yield Found(function, owner)
                case classmethod(__func__=FunctionType() as function):
                    yield Found(function, owner)
                case staticmethod(__func__=FunctionType() as function):
                    yield Found(function, None)


def _named_by(found: Found) -> Iterator[Found]:
    """The functions that a function names: its object's, and those of the user's modules."""
    function, owner = found
    names = _names(function.__code__)
    if owner is not None:
        yield from _methods(owner, names)
        yield from _held(getattr(owner, "__dict__", {}), names)
    if not is_user_file(function.__code__.co_filename):
        return
    yield from _held(_enclosed(function), names)
    yield from _held(function.__globals__, names)
    for module in map(function.__globals__.get, names):
        if isinstance(module, ModuleType) and is_user_file(getattr(module, "__file__", None) or ""):
            yield from _held(vars(module), names)


def _held(values: Mapping[str, Any], names: set[str]) -> Iterator[Found]:
    for name in names & values.keys():
        yield from _run_by(values[name])


def _names(code: CodeType) -> set[str]:
    """What a function names besides its own variables, and what the functions in it do."""
    inner = [each for each in code.co_consts if isinstance(each, CodeType)]
    return {*code.co_names, *code.co_freevars}.union(*map(_names, inner))


def _enclosed(function: FunctionType) -> dict[str, Any]:
    """The variables of the functions that it stands in."""
    found = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # it is not set yet
            found[name] = cell.cell_contents
    return found
