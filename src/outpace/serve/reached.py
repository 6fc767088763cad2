"""The functions that run where an item is asked for or a batch is collated, as far as names tell.

From ``__getitem__``, or a function, on to what they name: methods of the same object and of those that it
has, and functions and classes of the user's modules. A function that another one wraps is followed whoever
wrote the other; what cannot be looked into is told. What a library calls by other names is not found.
"""

from __future__ import annotations

import contextlib
import dis
import importlib.util
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec
from types import CodeType, FunctionType, MethodType, ModuleType, NoneType
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from outpace.measure.objects import closed_over
from outpace.measure.user_modules import attributes_of, file_of
from outpace.seams.where import is_user_file, short
from outpace.serve.members import by_name, functions_in, held, is_method, methods, special
from outpace.serve.whose import (
    is_compiled,
    is_users,
    is_users_function,
    is_users_module,
    kinds,
    told,
)

PLAIN = (NoneType, bool, int, float, complex, str, bytes, np.ndarray, torch.Tensor, nn.Parameter)
"""what has no functions of the user's"""
MOST_FUNCTIONS, MOST_THINGS = 2_000, 20_000
"""functions that are found, and things that one of them may name"""


class Found(NamedTuple):
    """A function, and the object that it is a method of, or None."""

    function: FunctionType
    owner: Any


class Closed(NamedTuple):
    """Something that may run, and why it is not looked into."""

    why: str


class Step(NamedTuple):
    """A function, the object whose names it may use, or None, and whether that is its first argument."""

    function: FunctionType
    owner: Any
    bound: bool


def reached(*makers: Any) -> Iterator[Found]:
    """The functions that data sets and collate functions run, each once."""
    return (each for each in reached_or_closed(*makers) if isinstance(each, Found))


def reached_or_closed(*makers: Any) -> Iterator[Found | Closed]:
    """The same, and what cannot be looked into."""
    ahead = deque(_run_by(makers, set(), makers))
    seen: dict[tuple[int, int, bool], Step] = {}
    while ahead:
        step = ahead.popleft()
        if isinstance(step, Closed):
            yield step
            continue
        function, owner, bound = step
        if (key := (id(function), id(owner), bound)) not in seen:
            if len(seen) == MOST_FUNCTIONS:
                yield Closed(f"more than {MOST_FUNCTIONS} functions may make a sample")
                return
            seen[key] = step
            yield Found(function, owner if bound else None)
            ahead += _named_by(step)


def _named_by(step: Step) -> Iterator[Step | Closed]:
    """What a function wraps, and what it names: in its object, and in the user's modules."""
    function, owner, bound = step
    users, names, things = is_users_function(function), _names(function.__code__), [owner]
    for each in (
        *closed_over(function).values(),
        *_defaults(function),
        *attributes_of(function).values(),
    ):
        if type(each) is FunctionType:
            yield Step(each, owner, bound and is_method(each, owner))
        elif users or callable(each):
            things.append(each)
    if users:
        things += by_name(function.__globals__, names)
        package = function.__globals__.get("__package__")
        things += by_name(sys.modules, names | {f"{package}.{name}" for name in names})
        imported = _imported(function.__code__, package)
        things += by_name(sys.modules, imported)
        for name in sorted(imported):
            if name not in sys.modules and _would_be_users(name):
                yield Closed(f"{name} is not imported before it is used")
    # Its own class is named for ``super``, which leads to methods of the owner.
    classes = [kind for kind in kinds(owner) if kind is not owner]
    things = [each for each in things if all(each is not kind for kind in classes)]
    yield from _run_by(things, names, [owner])


def _run_by(things: Sequence[Any], names: set[str], own: Sequence[Any]) -> Iterator[Step | Closed]:
    """What may run of things, and of what they hold, where a function has these names.

    ``own``: what is asked for samples, or the object of the function: no operators are used on that.
    """
    ahead = deque(things)
    seen: dict[int, Any] = {}
    while ahead:
        thing = ahead.popleft()
        if type(thing) in PLAIN or id(thing) in seen:
            continue
        if len(seen) == MOST_THINGS:
            yield Closed(f"a sample may be made by more than {MOST_THINGS} things")
            return
        seen[id(thing)] = thing
        yield from _runs(thing, names, any(thing is each for each in own))
        ahead += held(thing, names)


def _runs(thing: Any, names: set[str], own: bool) -> Iterator[Step | Closed]:
    """What may run of one thing itself."""
    match thing:
        case ModuleType():  # before all others: to ask one for its class may run it
            if is_users_module(thing) and type(thing) is not ModuleType:
                yield Closed(f"{short(str(file_of(thing)))} is not imported before it is used")
        case FunctionType():
            yield Step(thing, None, False)
        case MethodType(__func__=FunctionType() as function, __self__=owner):
            yield Step(function, owner, True)
        case torch.jit.ScriptFunction() if functions_in(thing):
            pass  # what it was made of can be read
        case _ if is_compiled(thing):
            name = told(thing, "__qualname__") or type(thing).__qualname__
            yield Closed(f"the source of {name} cannot be read")
        case type() if not is_users(thing.__module__):
            pass
        case _:
            for function, bound in methods(thing, names if own else names | special(thing)):
                yield Step(function, thing, bound)


def _names(code: CodeType) -> set[str]:
    """What a function names besides its own variables, be it as a text, and what the functions in it do."""
    inner = [each for each in code.co_consts if isinstance(each, CodeType)]
    texts = [each for each in code.co_consts if isinstance(each, str) and each.isidentifier()]
    return {*code.co_names, *code.co_freevars, *texts}.union(*map(_names, inner))


def _imported(code: CodeType, package: Any) -> set[str]:
    """The modules that a function of that package imports itself, by their whole names."""
    plain = [each for each in dis.get_instructions(code) if each.opname != "EXTENDED_ARG"]
    found: set[str] = set()
    for level, parts, each in zip(plain, plain[1:], plain[2:], strict=False):
        if each.opname != "IMPORT_NAME":
            continue
        try:
            name = importlib.util.resolve_name("." * level.argval + each.argval, package)
        except ImportError:  # there is no package, or none so far up: it would fail here too
            continue
        found.add(name)
        if module := sys.modules.get(name):
            has = attributes_of(module)
            found |= {f"{name}.{part}" for part in parts.argval or () if part not in has}
    inner = [each for each in code.co_consts if isinstance(each, CodeType)]
    return found.union(*(_imported(each, package) for each in inner))


def _would_be_users(name: str) -> bool:
    """Whether a module that is not imported would be the user's; nothing is imported for that.

    Not one that cannot be found: code that names it does not run, or fails.
    """
    at, path = "", None
    for part in name.split("."):
        at = f"{at}.{part}" if at else part
        if at in sys.modules:
            path = attributes_of(sys.modules[at]).get("__path__")
        elif (spec := _spec(at, path)) is None:
            return False
        elif spec.has_location:
            return is_user_file(spec.origin or "")
        else:  # a folder, or what is built in
            path = spec.submodule_search_locations
        if path is None:
            return False
    return False


def _spec(name: str, path: Any) -> ModuleSpec | None:
    for finder in list(sys.meta_path):
        with contextlib.suppress(Exception):  # as for a folder in a folder that is not imported
            if spec := finder.find_spec(name, path):
                return spec
    return None


def _defaults(function: FunctionType) -> list[Any]:
    """What its parameters are unless they are given."""
    return [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
