"""What an object holds besides its attributes: the items of a list and the like, and what is in its slots.

Items are had without a call of what a class may have made of its methods.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

SEVERAL: tuple[Any, ...] = (list, tuple, set, frozenset, deque)


def items_in(thing: Any) -> Iterator[Any] | None:
    """The items of a list or the like, or of a subclass of it; None of anything else."""
    kind = next((kind for kind in SEVERAL if isinstance(thing, kind)), None)
    return None if kind is None else kind.__iter__(thing)


def slots_of(thing: Any) -> list[Any]:
    """What is in an object's slots; None for one that has nothing in it."""
    kind: type = type(thing)
    return [getattr(thing, name, None) for name in _names(kind)]


@lru_cache(maxsize=256)
def _names(kind: type) -> tuple[str, ...]:
    found = (vars(each).get("__slots__", ()) for each in kind.__mro__)
    several = ((slots,) if isinstance(slots, str) else tuple(slots) for slots in found)
    return tuple(name for slots in several for name in slots if not name.startswith("__"))
