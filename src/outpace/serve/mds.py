"""MDS, the format of MosaicML's streaming: shards of samples that are dicts of columns.

Columns of JPEG and PNG are given as their bytes. Pickled columns are refused: to read them is to run code.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, final

import numpy as np

from outpace.serve.chunks import Chunks, array, integer, refused, text, values

VERSION = 2
IMAGES = ("jpeg", "png")
SHAPES = ("<u1", "<u2", "<u4", "<u8")
"""types of an array's shape, by the lower bits of its first byte"""
DTYPES = {
    8: "uint8", 9: "int8", 16: "uint16", 17: "int16", 18: "float16", 32: "uint32", 33: "int32",
    34: "float32", 64: "uint64", 65: "int64", 66: "float64",
}  # fmt: skip
"""of an array, by a byte"""
Decode = Callable[[memoryview], Any]


@final
@dataclass(frozen=True)
class Columns:
    """A record as a dict. ``sizes``: None of those that each record tells itself."""

    names: tuple[str, ...]
    sizes: tuple[int | None, ...]
    decoders: tuple[Decode, ...]

    def __call__(self, data: memoryview) -> dict[str, Any]:
        """One sample."""
        parts = zip(self.names, self.decoders, values(data, self.sizes), strict=True)
        return {name: decode(part) for name, decode, part in parts}


def open_mds(folder: Path, index: Any) -> Chunks:
    """By what index.json says. Raises DataError for what is not read here, KeyError for no MDS."""
    if index["version"] != VERSION:
        raise refused(folder, f"MDS of version {index['version']}, known is {VERSION}")
    files, columns = [], set()
    for shard in index["shards"]:
        if shard["format"] != "mds":
            raise refused(folder, f"shards of the format {shard['format']}, known is mds")
        name = shard["raw_data"]["basename"]
        if shard["zip_data"] and not (folder / name).exists():
            raise refused(folder, f"{name} is there compressed only ({shard['compression']})")
        files.append((name, shard["samples"]))
        parts = ("column_names", "column_sizes", "column_encodings")
        columns.add(tuple(tuple(shard[part]) for part in parts))
    if len(columns) != 1:
        raise refused(folder, f"its shards have {len(columns)} kinds of columns")
    names, sizes, encodings = columns.pop()
    decoders = []
    for name, encoding in zip(names, encodings, strict=True):
        found = decoder(encoding)
        if found is None:
            raise refused(folder, f"its column {name!r} is {encoding}, which is not read here")
        decoders.append(found)
    decode = Columns(names, tuple(size or None for size in sizes), tuple(decoders))
    kinds = zip(names, encodings, strict=True)
    return Chunks(folder, files, decode, [name for name, kind in kinds if kind in IMAGES])


def decoder(encoding: str) -> Decode | None:
    """What makes a value of a column's bytes."""
    kind, _, more = encoding.partition(":")
    if kind == "ndarray":
        dtype, _, shape = more.partition(":")
        known = tuple(map(int, shape.split(","))) if shape else None
        return partial(_array, np.dtype(dtype) if dtype else None, known)
    if kind in DTYPES.values():
        return partial(_number, np.dtype(kind))
    return PLAIN.get(encoding)


def _number(dtype: np.dtype[Any], data: memoryview) -> Any:
    return np.frombuffer(data, dtype)[0]


def _array(dtype: np.dtype[Any] | None, shape: tuple[int, ...] | None, data: memoryview) -> Any:
    if dtype is None:
        dtype, data = np.dtype(DTYPES[data[0]]), data[1:]
    if shape is None:
        kind = np.dtype(SHAPES[data[0] % 4])
        end = 1 + (data[0] >> 2) * kind.itemsize
        shape, data = tuple(np.frombuffer(data[1:end], kind).tolist()), data[end:]
    return array(data, dtype, shape)


def _written_int(data: memoryview) -> int:
    return int(text(data))


def _written_float(data: memoryview) -> float:
    return float(text(data))


def _json(data: memoryview) -> Any:
    return json.loads(text(data))


PLAIN: dict[str, Decode] = {
    "bytes": bytes,
    "jpeg": bytes,
    "png": bytes,
    "str": text,
    "int": integer,
    "str_int": _written_int,
    "str_float": _written_float,
    "json": _json,
}
