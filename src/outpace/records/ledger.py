"""Where the wall clock of a run went."""

from __future__ import annotations

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
