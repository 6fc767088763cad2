"""Batches whose making begins with the first of them, and which go on after one that could not be made."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, final


@final
class Later:
    """What ``begin`` gives, called when the first batch is asked for; ``draw`` takes the next one of it.

    A generator would end with the first error, and what a script passes over be its last batch.
    """

    def __init__(
        self, begin: Callable[[], Iterator[Any]], draw: Callable[[Any], Any] = next
    ) -> None:
        self.begin: Callable[[], Iterator[Any]] | None = begin
        self.draw = draw
        self.batches: Any = None

    def __iter__(self) -> Later:
        return self

    def __next__(self) -> Any:
        if self.begin is not None:
            begin, self.begin = self.begin, None
            self.batches = begin()
        return self.draw(self.batches)
