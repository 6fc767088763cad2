"""What a script's own functions and classes name beside what objects hold: knobs at the top of a module.

A data set may read a name of its module or of another module of the script's (``settings.SIZE``), or an
attribute of its class, that the script sets between epochs. Only of the script's own code. Data, its classes
and their objects, and its functions are looked at; of what else a name stands for only whether it is another
thing: what a library keeps inside changes for reasons of its own. Honest limit: a module is known by its name
at the top of the module that a function is in, not where it is imported inside of the function.
"""

from __future__ import annotations

import argparse
import dis
import sys
from collections import deque
from collections.abc import Iterator
from functools import cached_property, lru_cache
from pathlib import PurePath
from types import CodeType, FunctionType, MethodType, ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import torch

from outpace.seams.where import is_user_file

DATA = (
    *(type(None), bool, int, float, complex, str, bytes, list, tuple, dict, set, frozenset, deque),
    *(np.ndarray, np.generic, torch.Tensor, SimpleNamespace, argparse.Namespace, PurePath),
)
ATTRIBUTES = ("LOAD_ATTR", "LOAD_METHOD")


def by_class(kind: type) -> Iterator[Any]:
    """What a class of the script's, and those that it is derived from, hold and name in their functions."""
    for each in kind.__mro__:
        if _is_scripts(each.__module__):
            for value in list(vars(each).values()):
                function = _function_in(value)
                if function is not None:
                    yield from by_function(function)
                else:
                    yield _seen(value)


def by_function(function: FunctionType) -> Iterator[Any]:
    """What a function of the script's names in its module, and in others of the script's that it names."""
    if _is_scripts(function.__module__):
        for names in _named_in(function.__code__):
            yield from _reached(function.__globals__, names)


def _reached(there: dict[str, Any], names: tuple[str, ...]) -> Iterator[Any]:
    """What a name, and those of its attributes that follow, lead to: through modules of the script's."""
    for name in names:
        if name not in there:
            return
        value = there[name]
        if not isinstance(value, ModuleType) or not _is_scripts(value.__name__):
            yield _seen(value)
            return
        there = vars(value)


def _function_in(value: Any) -> FunctionType | None:
    if isinstance(value, staticmethod | classmethod | MethodType):
        value = value.__func__
    elif isinstance(value, property):
        value = value.fget
    elif isinstance(value, cached_property):
        value = value.func
    return value if isinstance(value, FunctionType) else None


def _seen(value: Any) -> Any:
    """What is to be looked at in the place of a value that has a name."""
    return value if _is_looked_at(value) else id(value)


def _is_looked_at(value: Any) -> bool:
    if isinstance(value, type | FunctionType):
        return _is_scripts(value.__module__)
    return isinstance(value, DATA) or _is_scripts(type(value).__module__)


def _is_scripts(module: str | None) -> bool:
    """Whether a module is the script's, or one of its own: a notebook has no file, nor has a mere folder."""
    found = sys.modules.get(module or "")
    file = getattr(found, "__file__", None) or next(iter(getattr(found, "__path__", ())), None)
    return module == "__main__" if file is None else is_user_file(file)


@lru_cache(maxsize=4096)
def _named_in(code: CodeType) -> tuple[tuple[str, ...], ...]:
    """Names of the module that a function, and those inside of it, read, each with those of attributes that
    it reads there at once: ``("settings", "SIZE")``.
    """
    found, names = set[tuple[str, ...]](), tuple[str, ...]()
    for each in dis.get_instructions(code):
        if each.opname in ATTRIBUTES and names:
            names += (each.argval,)
        elif each.opname != "EXTENDED_ARG":
            found.add(names)
            names = (each.argval,) if each.opname == "LOAD_GLOBAL" else ()
    inner = (each for each in code.co_consts if isinstance(each, CodeType))
    return tuple(sorted(found.union(*map(_named_in, inner))))
