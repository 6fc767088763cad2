"""LitData's optimized chunks: records of the leaves of a nest, whose shape the index tells once.

Images are given as their bytes. Honest limits: dicts, lists and tuples are known, of leaves that are
numbers, text, bytes, encoded images, arrays and tensors; tokens without a nest, compressed and encrypted
chunks and pickles are not read here.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, final

import numpy as np

from outpace.serve.chunks import WORD, Chunks, array, integer, refused, text, values

NUMPY = (
    *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "complex64", "complex128", "bool"),
)
TORCH = (
    *("float32", "float32", "float64", "float64", "complex64", "complex64", "complex128"),
    *("complex128", "float16", "float16", "bfloat16", "uint8", "int8", "int16", "int16"),
    *("int32", "int32", "int64", "int64", "bool", "uint16"),
)
"""types of arrays and tensors by their numbers"""
Decode = Callable[[memoryview], Any]
IMAGES = ("image", "jpeg")
TREE = 1
"""the version of how nests are told"""


@final
@dataclass(frozen=True)
class Nest:
    """A record as the nest that was written. ``tree``: as it is told; None is a leaf."""

    tree: Any
    decoders: tuple[Decode, ...]

    def __call__(self, data: memoryview) -> Any:
        """One sample."""
        parts = values(data, [None] * len(self.decoders))
        leaves = (decode(part) for decode, part in zip(self.decoders, parts, strict=True))
        return built(self.tree, leaves)


def open_litdata(folder: Path, index: Any) -> Chunks:
    """By what index.json says. Raises DataError for what is not read here, KeyError for no LitData."""
    config = index["config"]
    if config.get("item_loader", "PyTreeLoader") != "PyTreeLoader":
        raise refused(folder, f"chunks for LitData's {config['item_loader']}")
    for name in ("compression", "encryption"):
        if config.get(name):
            raise refused(folder, f"its chunks have {name} {config[name]}")
    version, told = json.loads(config["data_spec"])
    try:
        if version != TREE:
            raise ValueError(f"version {version}")
        tree = _tree(told)
        if len(list(_leaves(tree))) != len(config["data_format"]):
            raise ValueError(f"{len(config['data_format'])} leaves are named")
    except ValueError as error:
        raise refused(folder, f"samples of a shape that is not known: {error}") from error
    decoders = []
    for kind in config["data_format"]:
        decode = decoder(kind)
        if decode is None:
            raise refused(folder, f"its samples hold {kind}, which is not read here")
        decoders.append(decode)
    files = [(chunk["filename"], chunk["chunk_size"]) for chunk in index["chunks"]]
    return Chunks(folder, files, Nest(tree, tuple(decoders)), _images(tree, config["data_format"]))


def _tree(told: Any) -> Any:
    """None for a leaf, else the kind, the keys of a dict, and what is inside."""
    if told["type"] is None:
        return None
    kind = str(told["type"]).removeprefix("builtins.")
    if kind not in ("dict", "list", "tuple"):
        raise ValueError(told["type"])
    keys = json.loads(told["context"]) if kind == "dict" else None
    return kind, keys, [_tree(inner) for inner in told["children_spec"]]


def _leaves(tree: Any) -> Iterator[None]:
    if tree is None:
        yield None
    else:
        for inner in tree[2]:
            yield from _leaves(inner)


def _images(tree: Any, kinds: Sequence[str]) -> list[str]:
    """Fields of encoded images, where samples are dicts."""
    if tree is None or tree[0] != "dict":
        return []
    told, found = iter(kinds), []
    for name, inner in zip(tree[1], tree[2], strict=True):
        own = [next(told) for _ in _leaves(inner)]
        found += [name] if inner is None and own[0].partition(":")[0] in IMAGES else []
    return found


def built(tree: Any, leaves: Iterator[Any]) -> Any:
    """The nest again."""
    if tree is None:
        return next(leaves)
    kind, keys, inside = tree
    parts = [built(inner, leaves) for inner in inside]
    if kind == "dict":
        return dict(zip(keys, parts, strict=True))
    return tuple(parts) if kind == "tuple" else parts


def decoder(told: str) -> Decode | None:
    """What makes a leaf of its bytes."""
    kind, _, more = told.partition(":")
    if kind == "no_header_numpy":
        return partial(_flat_array, np.dtype(NUMPY[int(more)]))
    if kind == "no_header_tensor":
        return partial(_tensor, TORCH[int(more)], None)
    return PLAIN.get(kind)


def _flat_array(dtype: np.dtype[Any], data: memoryview) -> Any:
    return array(data, dtype)


def _headed_array(data: memoryview) -> Any:
    kind, rank = np.frombuffer(data[:8], WORD).tolist()
    end = 8 + 4 * rank
    shape = np.frombuffer(data[8:end], WORD).tolist()
    return array(data[end:], np.dtype(NUMPY[kind]), shape)


def _headed_tensor(data: memoryview) -> Any:
    kind, rank = struct.unpack_from(">II", data)
    shape = struct.unpack_from(f">{rank}I", data, 8)
    return _tensor(TORCH[kind], shape, data[8 + 4 * rank :])


def _tensor(kind: str, shape: tuple[int, ...] | None, data: memoryview) -> Any:
    import torch

    flat = torch.from_numpy(array(data, np.dtype(np.uint8))).view(getattr(torch, kind))
    return flat if shape is None else flat.reshape(shape)


def _float(data: memoryview) -> float:
    (found,) = struct.unpack("<d", data)
    return float(found)


def _bool(data: memoryview) -> bool:
    return data[0] != 0


PLAIN: dict[str, Decode] = {
    "bool": _bool,
    "bytes": bytes,
    "float": _float,
    "image": bytes,
    "int": integer,
    "jpeg": bytes,
    "numpy": _headed_array,
    "str": text,
    "tensor": _headed_tensor,
    "text": text,
}
