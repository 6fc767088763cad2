"""Samples of one fixed shape as rows of arrays, and back: nests of dict, list and tuple.

A leaf is told as {"leaf": field, "as": kind, "dtype": of the row, "shape": of the row}; kind is "int",
"float", "bool", "scalar" (numpy's), "array", or "torch.float32" and so on.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outpace.errors import DataError
from outpace.serve.samples import is_array, is_tensor, plain_array, refused, tensor_bytes

Row = NDArray[Any]
ONE = "sample"
"""field of a sample that is no nest"""
NUMBERS: dict[type, Any] = {bool: np.bool_, int: np.int64, float: np.float64}


class Uneven(DataError):
    """Samples that are not all of one shape and type."""


def split(sample: Any) -> tuple[Any, list[Row]]:
    """A sample's structure, and its leaves as arrays. Raises DataError for what is no array."""
    rows: list[Row] = []
    taken: set[str] = set()
    return _split(sample, (), rows, taken), rows


def _split(value: Any, path: tuple[str, ...], rows: list[Row], taken: set[str]) -> Any:
    kind = type(value)
    if kind is dict and all(type(key) is str for key in value):
        inner = [[key, _split(v, (*path, key), rows, taken)] for key, v in value.items()]
        return {"dict": inner}
    if kind is tuple or kind is list:
        parts = [_split(v, (*path, str(i)), rows, taken) for i, v in enumerate(value)]
        return {kind.__name__: parts}
    name, row = _leaf(value)
    rows.append(row)
    field = re.sub(r"^\.|[^\w.-]", "_", ".".join(path)) or ONE  # no hidden file
    while field.lower() in taken:  # a file system may tell them apart by no more
        field += "_"
    taken.add(field.lower())
    return {"leaf": field, "as": name, "dtype": row.dtype.str, "shape": list(row.shape)}


def _leaf(value: Any) -> tuple[str, Row]:
    if is_tensor(value):
        name, data = tensor_bytes(value)
        kind = np.dtype(name) if hasattr(np, name) else np.dtype(f"u{value.element_size()}")
        return f"torch.{name}", data.view(kind).reshape(tuple(value.shape))
    if is_array(value):
        array = plain_array(value)
        if array.dtype.kind in "SU":  # of another length in each sample
            raise refused(value)
        return ("scalar" if isinstance(value, np.generic) else "array"), array
    if type(value) in NUMBERS:
        try:
            return type(value).__name__, np.asarray(value, NUMBERS[type(value)])
        except OverflowError as error:
            raise DataError(f"cannot be packed: {error}") from error
    raise refused(value)


def join(structure: Any, leaf: Callable[[Any], Any]) -> Any:
    """A nest with ``leaf`` of each leaf in it."""
    ((kind, inside), *_) = structure.items()
    if kind == "dict":
        return {key: join(inner, leaf) for key, inner in inside}
    if kind == "leaf":
        return leaf(structure)
    parts = [join(inner, leaf) for inner in inside]
    return tuple(parts) if kind == "tuple" else parts


def leaves(structure: Any) -> Iterator[Any]:
    """Its leaves in order."""
    found: list[Any] = []
    join(structure, found.append)
    return iter(found)


def one(leaf: Any, row: Any) -> Any:
    """What a sample had there, from its row."""
    kind = leaf["as"]
    if kind == "array":
        return np.array(row)
    if kind in ("int", "float", "bool"):
        return row.item()
    return many(leaf, np.array(row)) if kind.startswith("torch.") else row


def many(leaf: Any, rows: Row) -> Any:
    """Rows of a batch: a tensor where the samples had tensors, else an array."""
    if not leaf["as"].startswith("torch."):
        return rows
    import torch

    return torch.from_numpy(rows).view(getattr(torch, leaf["as"].removeprefix("torch.")))
