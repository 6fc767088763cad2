"""Bytes of what is in a batch, objects of other classes among it.

Honest limit: in such an object only attributes and plain nests are looked through, so many things in all;
what libraries of other languages keep is not seen.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterator
from functools import lru_cache
from itertools import chain, islice
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

SMALL = 8
"""of a number, or of what tells of no bytes"""
LOOKED_THROUGH = 1000
"""things of an object"""
ROWS, COLUMNS = ("crow_indices", "col_indices"), ("ccol_indices", "row_indices")
PARTS = {
    torch.sparse_coo: ("_indices", "_values"),
    torch.sparse_csr: (*ROWS, "values"),
    torch.sparse_bsr: (*ROWS, "values"),
    torch.sparse_csc: (*COLUMNS, "values"),
    torch.sparse_bsc: (*COLUMNS, "values"),
}
"""of sparse tensors"""
NUMBERS = (int, float, complex, type(None), np.generic)
COUNTED = (torch.Tensor, np.ndarray, bytes, str)
SEVERAL = (list, tuple, set, frozenset, deque)
APART = (
    *(*NUMBERS, type, ModuleType, FunctionType, BuiltinFunctionType, MethodType),
    *(Dataset, DataLoader, torch.nn.Module),
)
"""what holds nothing, or is not a batch's own where it is named in one"""


def leaf_bytes(leaf: Any) -> int:
    """Bytes of one thing in a batch: of tensors, arrays and texts, and of those that an object holds."""
    if isinstance(leaf, torch.Tensor):
        return _of_tensor(leaf)
    if isinstance(leaf, np.ndarray):
        return leaf.nbytes
    if isinstance(leaf, bytes | str):
        return len(leaf)
    return SMALL if isinstance(leaf, APART) else max(SMALL, _of_object(leaf))


def _of_tensor(tensor: torch.Tensor) -> int:
    if parts := PARTS.get(tensor.layout):
        return sum(getattr(tensor, part)().nbytes for part in parts)
    with contextlib.suppress(RuntimeError):  # torch does not tell of each kind
        return tensor.nbytes
    return SMALL


def _of_object(thing: Any) -> int:
    """What is near is looked at first, and nothing twice."""
    found, seen, to_come = 0, {id(thing)}, deque([thing])
    while to_come and len(seen) < LOOKED_THROUGH:
        for one in islice(_inside(to_come.popleft()), LOOKED_THROUGH):
            if isinstance(one, APART) or id(one) in seen:
                continue
            seen.add(id(one))
            if isinstance(one, COUNTED):
                found += leaf_bytes(one)
            else:
                to_come.append(one)
    return found


def _inside(thing: Any) -> Iterator[Any]:
    """Without a call of what the class may have made of its methods."""
    of: type = type(thing)
    parts = [getattr(thing, name, None) for name in _slots(of)]
    if type(attributes := getattr(thing, "__dict__", None)) is dict:
        parts += attributes.values()
    if isinstance(thing, dict):
        return chain(dict.values(thing), parts)
    kind = next((kind for kind in SEVERAL if isinstance(thing, kind)), None)
    return chain(kind.__iter__(thing), parts) if kind is not None else iter(parts)


@lru_cache(maxsize=256)
def _slots(kind: type) -> tuple[str, ...]:
    found = (vars(each).get("__slots__", ()) for each in kind.__mro__)
    several = ((slots,) if isinstance(slots, str) else tuple(slots) for slots in found)
    return tuple(name for slots in several for name in slots if not name.startswith("__"))
