"""Bytes of what is in a batch, objects of other classes among it.

Honest limit: in such objects only attributes and plain nests are looked through, so many things of a batch
in all; what libraries of other languages keep is not seen, nor what another thread is just writing to.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterator
from itertools import chain, islice
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from outpace.serve.inside import items_in, slots_of

SMALL = 8
"""of a number, or of what tells of no bytes"""
LOOKED_THROUGH, OF_EACH = 1000, 16
"""things of a batch's objects that are looked at: so many, and so many more for each of the objects"""
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
APART = (
    *(*NUMBERS, type, ModuleType, FunctionType, BuiltinFunctionType, MethodType),
    *(Dataset, DataLoader, torch.nn.Module),
)
"""what holds nothing, or is not a batch's own where it is named in one"""


def leaf_bytes(*leaves: Any) -> int:
    """Bytes of things in a batch: of tensors, arrays and texts, and of those that its objects hold.

    What several objects hold is counted once.
    """
    found, objects = 0, []
    for leaf in leaves:
        if isinstance(leaf, COUNTED):
            found += _of_counted(leaf)
        elif isinstance(leaf, APART):
            found += SMALL
        else:
            objects.append(leaf)
    seen = {id(leaf): leaf for leaf in leaves}
    return found + max(SMALL * len(objects), _of_objects(objects, seen) if objects else 0)


def _of_counted(thing: Any) -> int:
    if isinstance(thing, torch.Tensor):
        return _of_tensor(thing)
    return thing.nbytes if isinstance(thing, np.ndarray) else len(thing)


def _of_tensor(tensor: torch.Tensor) -> int:
    if parts := PARTS.get(tensor.layout):
        return sum(getattr(tensor, part)().nbytes for part in parts)
    with contextlib.suppress(RuntimeError):  # torch does not tell of each kind
        return tensor.nbytes
    return SMALL


def _of_objects(objects: list[Any], seen: dict[int, Any]) -> int:
    """What is near to any of them is looked at first, and nothing twice. ``seen``: what is counted."""
    found, left, to_come = 0, LOOKED_THROUGH + OF_EACH * len(objects), deque(objects)
    while to_come and left > 0:
        # Another thread may write to what is shared: the rest of that is left out.
        with contextlib.suppress(RuntimeError):
            for one in islice(_inside(to_come.popleft()), min(left, LOOKED_THROUGH)):
                left -= 1
                if isinstance(one, APART) or id(one) in seen:
                    continue
                seen[id(one)] = one  # kept, so that nothing else comes to have its id
                if isinstance(one, COUNTED):
                    found += _of_counted(one)
                else:
                    to_come.append(one)
    return found


def _inside(thing: Any) -> Iterator[Any]:
    """Without a call of what the class may have made of its methods."""
    parts = slots_of(thing)
    if type(attributes := getattr(thing, "__dict__", None)) is dict:
        parts += attributes.values()
    if isinstance(thing, dict):
        return chain(dict.values(thing), parts)
    items = items_in(thing)
    return iter(parts) if items is None else chain(items, parts)
