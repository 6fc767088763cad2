"""How many samples a data set has."""

from __future__ import annotations

from typing import Any


def length_of(dataset: Any) -> int | None:
    """So many; None of one that does not tell."""
    try:
        return len(dataset)
    except TypeError:
        return None
