"""Marks on the memory under tensors, by which numbers are known again in views of them.

Memory is not held for that: when it is let go its marks are gone, and whatever comes to lie there has none.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Generic, TypeVar

from torch.multiprocessing.reductions import StorageWeakRef

from outpace.measure.dispatch import memory_of

Mark = TypeVar("Mark", bound=Hashable)


class Marks(Generic[Mark]):
    """What memory is marked with."""

    def __init__(self) -> None:
        self._marked: dict[int, tuple[Any, frozenset[Mark]]] = {}
        """by its address: a weak reference to the memory, and its marks"""

    def put(self, value: Any, *marks: Mark) -> None:
        """Mark the memory under tensors, beside what it is marked with already."""
        for at, memory in memory_of(value).items():
            held = StorageWeakRef(memory)  # type: ignore[no-untyped-call]
            self._marked[at] = held, self._at(at).union(marks)

    def of(self, value: Any) -> frozenset[Mark]:
        """All marks of the memory under tensors."""
        return frozenset[Mark]().union(*map(self._at, memory_of(value)))

    def clear(self) -> None:
        """Forget all marks."""
        self._marked.clear()

    def _at(self, address: int) -> frozenset[Mark]:
        memory, marks = self._marked.get(address, (None, frozenset[Mark]()))
        return frozenset() if memory is None or memory.expired() else marks
