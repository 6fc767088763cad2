"""What a script's own functions and classes name beside what objects hold: knobs at the top of a module.

A data set may read a name of its module, or an attribute of its class, that the script sets between epochs.
Only of the script's own code, and of those names data, its classes and their objects, and its functions: what
a library keeps there changes for reasons of its own.
"""

from __future__ import annotations

import argparse
import dis
import sys
from collections import deque
from collections.abc import Iterator
from functools import cached_property, lru_cache
from types import CodeType, FunctionType, MethodType, SimpleNamespace
from typing import Any

import numpy as np
import torch

from outpace.seams.where import is_user_file

DATA = (
    *(type(None), bool, int, float, complex, str, bytes, list, tuple, dict, set, frozenset, deque),
    *(np.ndarray, np.generic, torch.Tensor, SimpleNamespace, argparse.Namespace),
)


def by_class(kind: type) -> Iterator[Any]:
    """What a class of the script's, and those that it is derived from, hold and name in their functions."""
    for each in kind.__mro__:
        if _is_scripts(each.__module__):
            for value in list(vars(each).values()):
                function = _function_in(value)
                if function is not None:
                    yield from by_function(function)
                elif _is_looked_at(value):
                    yield value


def by_function(function: FunctionType) -> Iterator[Any]:
    """What a function of the script's names in its module."""
    if _is_scripts(function.__module__):
        there = function.__globals__
        for name in _globals_of(function.__code__):
            if name in there and _is_looked_at(there[name]):
                yield there[name]


def _function_in(value: Any) -> FunctionType | None:
    if isinstance(value, staticmethod | classmethod | MethodType):
        value = value.__func__
    elif isinstance(value, property):
        value = value.fget
    elif isinstance(value, cached_property):
        value = value.func
    return value if isinstance(value, FunctionType) else None


def _is_looked_at(value: Any) -> bool:
    if isinstance(value, type | FunctionType):
        return _is_scripts(value.__module__)
    return isinstance(value, DATA) or _is_scripts(type(value).__module__)


def _is_scripts(module: str | None) -> bool:
    """Whether a module is the script's, or one of its own: a notebook has no file."""
    found = sys.modules.get(module or "")
    file = getattr(found, "__file__", None)
    return module == "__main__" if file is None else is_user_file(file)


@lru_cache(maxsize=4096)
def _globals_of(code: CodeType) -> tuple[str, ...]:
    """Names of the module that a function, and those inside of it, read."""
    names = {each.argval for each in dis.get_instructions(code) if each.opname == "LOAD_GLOBAL"}
    inner = (each for each in code.co_consts if isinstance(each, CodeType))
    return tuple(sorted(names.union(*map(_globals_of, inner))))
