"""Nested batches: dictionaries, tuples and lists of tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def each(batch: Any, change: Callable[[Any], Any]) -> Any:
    """A nest with every leaf in it changed."""
    if isinstance(batch, dict):
        return {key: each(value, change) for key, value in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(each(value, change) for value in batch))
    if isinstance(batch, tuple | list):
        return type(batch)(each(value, change) for value in batch)
    return change(batch)


def leaves(batch: Any) -> list[Any]:
    """What a nest holds."""
    found: list[Any] = []
    each(batch, found.append)
    return found
