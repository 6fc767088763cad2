"""Whether functions are the very ones that were met before; that is remembered weakly."""

from __future__ import annotations

import operator
import weakref
from types import MethodType
from typing import Any, final


def parts_of(*functions: Any) -> list[Any]:
    """What tells functions from others, None left out: of a method, which is another object each time that it
    is named, what it is of and its function.
    """
    found: list[Any] = []
    for each in functions:
        if isinstance(each, MethodType):
            found += (each.__self__, each.__func__)
        elif each is not None:
            found.append(each)
    return found


@final
class Functions:
    """Functions. Raises TypeError for what cannot be referred to weakly."""

    def __init__(self, *functions: Any) -> None:
        self.parts = [weakref.ref(part) for part in parts_of(*functions)]

    def are(self, *functions: Any) -> bool:
        """Whether these are the same, and not ones like them."""
        own, parts = [part() for part in self.parts], parts_of(*functions)
        return len(own) == len(parts) and all(map(operator.is_, own, parts))

    def are_over(self) -> bool:
        """Whether one is gone."""
        return any(part() is None for part in self.parts)
