"""meta.json of a packed folder: what is in it, what it was made from, and how near it is to that."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from outpace.errors import DataError
from outpace.serve.reading import unreadable

FILE = "meta.json"
VERSION = 1
Kind = Literal["records", "arrays", "table", "tars"]


class Skipped(msgspec.Struct, frozen=True):
    """What was left out, and why."""

    path: str
    reason: str


class Origin(msgspec.Struct, frozen=True):
    """What was packed. ``digest``: SHA-256 of its files' names, sizes and times."""

    path: str
    files: int
    bytes: int
    digest: str


class Meta(msgspec.Struct, frozen=True, kw_only=True):
    """Of one packed folder. ``structure``: how arrays are put together to samples."""

    outpace_pack: int = VERSION
    kind: Kind
    count: int
    bytes: int
    fields: tuple[str, ...]
    classes: tuple[str, ...] | None = None
    source: Origin
    options: dict[str, Any] = {}
    grade: Literal["exact", "numerics", "learning"] = "exact"
    why: str = ""
    skipped: tuple[Skipped, ...] = ()
    structure: Any = None
    shards: tuple[str, ...] = ()


def is_pack(folder: str | Path) -> bool:
    """Whether `outpace pack` wrote this folder."""
    try:
        text = Path(folder, FILE).read_bytes()
    except OSError:
        return False
    return b'"outpace_pack"' in text


def read_meta(folder: Path) -> Meta:
    """Raises DataError where it cannot be read, or is of a newer version."""
    path = folder / FILE
    try:
        meta = msgspec.json.decode(path.read_bytes(), type=Meta)
    except (OSError, ValueError, msgspec.MsgspecError) as error:
        raise unreadable(path, error) from error
    if meta.outpace_pack > VERSION:
        raise DataError(
            f"{path}: written by a newer outpace (format {meta.outpace_pack}, known: {VERSION})",
            "update outpace",
        )
    return meta


def load_array(path: Path) -> NDArray[Any]:
    """An array that stays in its file. Raises DataError where that is missing, cut off or no array."""
    try:
        return np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
    except Exception as error:  # a broken head makes numpy raise all kinds of them
        raise unreadable(path, error) from error


def load_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Those of an .npz, by name. Raises DataError where it is missing, cut off or damaged."""
    try:
        with np.load(path, allow_pickle=False) as kept:
            return {name: kept[f"{name}.npy"] for name in kept.files}  # as they are called inside
    except Exception as error:  # as zipfile and zlib raise their own
        raise unreadable(path, error) from error
