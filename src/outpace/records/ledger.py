"""Where the wall clock of a run went."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

NAMES = (
    "startup",
    "input",
    "transfer",
    "forward",
    "backward",
    "optimizer",
    "sync",
    "validation",
    "checkpoint",
    "epoch_end",
    "compiling",
    "logging",
    "elsewhere",
    "ending",
)
ONCE = ("startup", "ending")
"""spent once, however long the training is"""
NOW_AND_THEN = ("validation", "checkpoint", "epoch_end", "compiling")
"""comes between steps, most often"""


class Row(msgspec.Struct, frozen=True):
    """Seconds and share of one kind of time; ``where`` is ``file:line`` where one place explains it."""

    name: str
    seconds: float
    share: float
    where: str | None = None


def rows_of(seconds: Mapping[tuple[str, str | None], float]) -> list[Row]:
    """Rows by their names and places, the largest first."""
    total = sum(seconds.values()) or 1.0
    rows = [Row(name, v, v / total, where) for (name, where), v in seconds.items() if v > 0]
    return sorted(rows, key=lambda row: -row.seconds)


def with_ending(rows: Sequence[Row], seconds: float) -> list[Row]:
    """The rows of a run that was seen to its end, and the end of its process, which no seam sees.

    Python frees its objects and torch its libraries: a second where a script took a few.
    """
    found = {(row.name, row.where): row.seconds for row in rows}
    found["ending", None] = found.get(("ending", None), 0.0) + seconds
    return rows_of(found)
