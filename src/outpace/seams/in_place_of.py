"""A function in the place of another, and out of it again.

One in the place of a module's is pickled as that: a script may hand it to a process.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any


def put_back(owner: Any, name: str, ours: Any, original: Any) -> bool:
    """Unless the script has put something in its place since, which may call ours: then ours stays."""
    if vars(owner).get(name) is not ours:
        return False
    setattr(owner, name, original)
    return True


def in_place_of(owner: ModuleType, name: str) -> Callable[[Callable[..., Any]], Any]:
    """Give a function the looks of ``owner``'s of that name, and the address where it is about to be put."""

    def dress(function: Callable[..., Any]) -> Any:
        functools.update_wrapper(function, getattr(owner, name))
        function.__module__ = owner.__name__  # the other may be of a private part, or a method
        function.__qualname__ = name
        return function

    return dress
