"""What a thing has that may run or leads to what does: its methods, its parts, and what it has by a name.

Nothing is asked of the thing itself: no property is computed, and no module imported that waits for its use.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Mapping
from itertools import islice
from types import FunctionType, MemberDescriptorType, MethodType, ModuleType
from typing import Any

from torch import nn

from outpace.measure.user_modules import attributes_of
from outpace.serve.whose import is_users, is_users_module, kinds

ENTRIES = {"__getitem__", "__getitems__", "__call__", "forward"}
"""methods that run without being named, whoever wrote the class"""
MAKING = {"__init__", "__new__", "__post_init__"}
"""special methods that run where an object is made"""
ASIDE = {
    *("__getattr__", "__getattribute__", "__setattr__", "__delattr__", "__eq__", "__ne__"),
    *("__hash__", "__repr__", "__str__", "__format__", "__getstate__", "__setstate__"),
    *("__reduce__", "__reduce_ex__", "__copy__", "__deepcopy__", "__del__", "__set_name__"),
    *("__init_subclass__", "__class_getitem__"),
}
"""special methods that are given something else than samples"""
MOST_PARTS = 64
"""of a list or the like that are looked at"""


def methods(owner: Any, names: set[str]) -> Iterator[tuple[FunctionType, bool]]:
    """Those of an object or a class, and whether this is their first argument.

    Of all classes that it is made of: the method of one may ask the next. ``names`` besides `ENTRIES`.
    """
    made = not isinstance(owner, type)
    for kind in kinds(owner):
        if kind is nn.Module:  # its __call__, or ours in that place, leads to forward
            continue
        for name in sorted(vars(kind).keys() & (names | ENTRIES)):
            member = vars(kind)[name]
            for function in functions_in(member):
                match member:
                    case FunctionType():
                        bound = made
                    case staticmethod():
                        bound = False
                    case _:
                        bound = made or isinstance(member, classmethod)
                        bound = bound and is_method(function, owner)
                yield function, bound


def special(thing: Any) -> set[str]:
    """The methods that operators and the like run, of classes of the user's; none that were generated."""
    aside = ASIDE if isinstance(thing, type) else ASIDE | MAKING
    return {
        name
        for kind in kinds(thing)
        if is_users(kind.__module__)
        for name, member in vars(kind).items()
        if name.startswith("__") and name not in aside
        if not any(each.__code__.co_filename.startswith("<") for each in functions_in(member))
    }


def functions_in(thing: Any) -> list[FunctionType]:
    """A function, or those that something wraps."""
    match thing:
        case FunctionType():
            return [thing]
        case property(fget=inner) | functools.cached_property(func=inner):
            return functions_in(inner)
        case classmethod(__func__=inner) | staticmethod(__func__=inner):
            return functions_in(inner)
    return [each for each in attributes_of(thing).values() if type(each) is FunctionType]


def is_method(function: FunctionType, owner: Any) -> bool:
    """Whether it is written in one of the owner's classes, where what it belongs to comes first."""
    return function.__qualname__.rpartition(".")[0] in {each.__qualname__ for each in kinds(owner)}


def held(thing: Any, names: set[str]) -> Iterator[Any]:
    """What one thing holds: its parts, what it wraps, and what it has by these names."""
    match thing:
        case ModuleType():  # before all others: to ask one for its class may run it
            if is_users_module(thing):
                yield from by_name(attributes_of(thing), names)
        case FunctionType():
            pass  # this is found with what it names
        case MethodType():
            if not isinstance(thing.__func__, FunctionType):
                yield from (thing.__func__, thing.__self__)
        case type():
            if is_users(thing.__module__):
                yield from _of_class(thing, names)
        case _:
            own = attributes_of(thing)
            by_any = any("__getattr__" in vars(kind) for kind in kinds(thing))
            yield from list(own.values()) if by_any else by_name(own, names)
            yield from _of_class(thing, names)
            yield from _parts(thing)
            if callable(thing):
                yield from functions_in(thing)


def _binds(member: Any, owner: Any) -> bool:
    """Whether it is a method, be it in a wrapper, and so among these."""
    binding = (FunctionType, property, functools.cached_property, classmethod, staticmethod)
    inside = functions_in(member)
    return type(member) in binding or any(is_method(each, owner) for each in inside)


def by_name(values: Mapping[str, Any], names: set[str]) -> list[Any]:
    """Those of the values that have one of the names."""
    return [values[name] for name in sorted(names & values.keys())]


def _of_class(thing: Any, names: set[str]) -> Iterator[Any]:
    """What a class, or an object's, has by these names besides methods."""
    for kind in kinds(thing):
        for member in by_name(vars(kind), names):
            if type(member) is MemberDescriptorType:  # of __slots__
                with contextlib.suppress(AttributeError, TypeError):
                    yield member.__get__(thing)
            elif not _binds(member, thing):
                yield member


def _parts(thing: Any) -> Iterator[Any]:
    match thing:
        case nn.Module():
            with contextlib.suppress(AttributeError):  # of one that is not set up
                yield from list(nn.Module.modules(thing))
        case functools.partial():
            yield from (thing.func, *thing.args, *thing.keywords.values())
        case dict():
            yield from list(islice(dict.values(thing), MOST_PARTS))
        case list() | tuple() | set() | frozenset():
            kind: Any = next(k for k in kinds(thing) if k in (list, tuple, set, frozenset))
            yield from list(islice(kind.__iter__(thing), MOST_PARTS))
