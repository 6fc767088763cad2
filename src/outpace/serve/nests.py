"""Nested batches: dictionaries, tuples and lists of tensors, and a UserDict, as tokenizers give."""

from __future__ import annotations

import copy
from collections import UserDict
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from torch.nn.utils.rnn import PackedSequence


def each(batch: Any, change: Callable[[Any], Any], *, exact: bool = False) -> Any:
    """A nest with every leaf in it changed; its containers stay of their classes.

    ``exact``: what is of another class than dict, list, tuple or a NamedTuple is a leaf.
    """
    kind = type(batch)
    if kind is dict:
        return {key: each(value, change, exact=exact) for key, value in batch.items()}
    if kind is list or kind is tuple:
        return kind(each(value, change, exact=exact) for value in batch)
    if not is_nest(batch) or (exact and not (kind.__bases__ == (tuple,) and _named(batch))):
        return change(batch)
    if isinstance(batch, dict | UserDict):
        changed = copy.copy(batch)
        for key, value in batch.items():
            changed[key] = each(value, change, exact=exact)
        return changed
    parts = [each(value, change, exact=exact) for value in batch]
    if isinstance(batch, tuple):
        return kind(*parts) if _named(batch) else kind(parts)
    found = copy.copy(batch)
    found[:] = parts
    return found


def leaves(batch: Any) -> list[Any]:
    """What a nest holds."""
    return list(_leaves(batch))


def is_nest(batch: Any) -> bool:
    """Whether it has parts; packed sequences are tensors that know of each other."""
    return isinstance(batch, dict | list | tuple | UserDict) and not isinstance(
        batch, PackedSequence
    )


def _named(batch: Any) -> bool:
    return hasattr(batch, "_fields")


def _leaves(batch: Any) -> Iterator[Any]:
    if not isinstance(batch, dict | list | tuple | Mapping):
        yield batch
        return
    for part in batch if isinstance(batch, list | tuple) else batch.values():
        yield from _leaves(part)
