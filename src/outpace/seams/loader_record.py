"""What is known of one DataLoader, and the feeds that were made of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

from outpace.seams.setup import Feed

RECENT = 3
"""batches kept to be given again"""


class Runner(Protocol):
    """A feed at work on one DataLoader."""

    def epoch(self) -> Iterator[Any]:
        """The batches of one epoch."""

    def pause(self) -> None:
        """Stop working ahead."""

    def resume(self) -> None:
        """Work ahead again."""

    def close(self) -> None:
        """End threads and processes."""


@dataclass
class Record:
    """What is known of one DataLoader."""

    where: str | None = None
    trains: bool = False
    length: int | None = None
    epochs: int = 0
    draws: int = 0
    given: int = 0
    """batches given in this epoch"""
    wait: int = 0
    """ns waited for the batches of this epoch and those before"""
    starts: list[int] = field(default_factory=list)
    """ns of each epoch's start: making the iterator and drawing the first batch"""
    recent: deque[Any] = field(default_factory=lambda: deque(maxlen=RECENT))
    scaled: dict[float, list[Any]] = field(default_factory=dict)
    runners: dict[Feed, Runner] = field(default_factory=dict)
    endless: dict[Feed, Iterator[Any]] = field(default_factory=dict)
    iterator: Any = None
    """the DataLoader's own iterator of this epoch, weakly: it ends its workers when it is let go"""
    turn: int = 0

    @property
    def own(self) -> Any:
        """The DataLoader's own iterator of this epoch, while the script holds it."""
        return None if self.iterator is None else self.iterator()
