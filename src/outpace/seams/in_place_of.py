"""A function in the place of one of a module's, as which it is pickled: a script may hand it to a process."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any


def in_place_of(owner: ModuleType, name: str) -> Callable[[Callable[..., Any]], Any]:
    """Give a function the looks of ``owner``'s of that name, and the address where it is about to be put."""

    def dress(function: Callable[..., Any]) -> Any:
        functools.update_wrapper(function, getattr(owner, name))
        function.__module__ = owner.__name__  # the other may be of a private part, or a method
        function.__qualname__ = name
        return function

    return dress
