"""Whether the user wrote what runs, and whether that can be read."""

from __future__ import annotations

import contextlib
import ctypes
import importlib.machinery
import sys
from types import FunctionType, ModuleType
from typing import Any

import torch

from outpace.measure.user_modules import file_of
from outpace.seams.where import is_user_file

EXTENSIONS = tuple(importlib.machinery.EXTENSION_SUFFIXES)
COMPILED = (torch.jit.ScriptFunction, torch.jit.ScriptModule, ctypes.CDLL)


def is_users_function(function: FunctionType) -> bool:
    """Whether the user wrote it; what ``exec`` made of a text has a module but no file."""
    file = function.__code__.co_filename
    return is_user_file(file) or (file.startswith("<") and is_users(function.__module__))


def is_users(module: str | None) -> bool:
    """Whether the module of that name is the user's; what is made without a module is so too."""
    return module in (None, "__main__") or is_users_module(sys.modules.get(module or ""))


def is_users_module(module: ModuleType | None) -> bool:
    """Whether a module is the user's; it is not run for that."""
    return is_user_file(file_of(module) or "")


def is_compiled(thing: Any) -> bool:
    """Whether it, or its class, is of an extension module of the user's, or other machine code or script."""
    if isinstance(thing, COMPILED):
        return True
    homes = {told(thing, "__module__"), *(kind.__module__ for kind in kinds(thing))}
    files = (file_of(sys.modules.get(home)) or "" for home in homes if isinstance(home, str))
    return any(file.endswith(EXTENSIONS) and is_user_file(file) for file in files)


def kinds(thing: Any) -> tuple[type, ...]:
    """A class, or an object's, and those that it is made of."""
    return (thing if isinstance(thing, type) else type(thing)).__mro__


def told(thing: Any, name: str) -> Any:
    """What an object has by a name, or None; no code of its own is run for that."""
    with contextlib.suppress(Exception):
        return object.__getattribute__(thing, name)
    return None
