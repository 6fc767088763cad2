"""Functions in the places of others, and out of them again.

One in the place of a module's is pickled as that: a script may hand it to a process.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import FunctionType, ModuleType
from typing import Any, final

_INHERITED = object()
"""stands for what an owner has of another"""


@final
class Replaced:
    """What something of ours stands in the place of, by its owner and its name there.

    What the script has put over ours since may call it: that stays, and ours is not put there once more.
    """

    def __init__(self) -> None:
        self._found: dict[tuple[Any, str], tuple[Any, Any]] = {}
        """what stands there, and what stood there before"""

    def put(self, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
        """In the place of the original what ``make`` gives of it; unless it stands there."""
        if (owner, name) not in self._found:
            before, ours = vars(owner).get(name, _INHERITED), make(getattr(owner, name))
            self._found[owner, name] = ours, before
            setattr(owner, name, ours)

    def put_back(self, owner: Any, name: str) -> bool:
        """Whether ours stood there, and the original does again."""
        ours, before = self._found.get((owner, name), (None, None))
        if ours is None or vars(owner).get(name) is not ours:
            return False
        if before is _INHERITED:
            delattr(owner, name)
        else:
            setattr(owner, name, before)
        del self._found[owner, name]
        return True

    def put_all_back(self) -> None:
        """The same of each."""
        for owner, name in list(self._found):
            self.put_back(owner, name)


@final
class Unbound:
    """A function in the place of a builtin: like that it binds to no object whose class has it."""

    def __init__(self, function: Callable[..., Any]) -> None:
        functools.update_wrapper(self, function, updated=())  # it may be of a class
        self._function = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._function(*args, **kwargs)

    def __reduce__(self) -> str:
        return str(self.__qualname__)  # type: ignore[attr-defined]


def in_place_of(owner: ModuleType, name: str) -> Callable[[Callable[..., Any]], Any]:
    """Give a function the looks of ``owner``'s of that name, and the address where it is about to be put."""

    def dress(function: Callable[..., Any]) -> Any:
        original = getattr(owner, name)
        functools.update_wrapper(function, original)
        ours: Any = function if isinstance(original, FunctionType) else Unbound(function)
        ours.__module__ = owner.__name__  # the other may be of a private part, or a method
        ours.__qualname__ = name
        return ours

    return dress
