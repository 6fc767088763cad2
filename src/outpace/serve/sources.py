"""A data set from what names it: a folder, tars, a table, other packages' files, or ``module:name``."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from outpace.errors import DataError, UsageError
from outpace.serve.arrays import Arrays
from outpace.serve.chunks import INDEX
from outpace.serve.files import Files
from outpace.serve.hugging_face import INFO, SPLITS, STATE, HuggingFace
from outpace.serve.listing import names_below
from outpace.serve.litdata import open_litdata
from outpace.serve.mds import open_mds
from outpace.serve.meta import Skipped, is_pack, read_meta
from outpace.serve.parts import TABLES, told_apart
from outpace.serve.reading import unreadable
from outpace.serve.records import Records
from outpace.serve.remote import Remote, is_remote
from outpace.serve.table_files import parts_of
from outpace.serve.tables import Table
from outpace.serve.tars import Tars

OBJECT = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")
JOURNAL = "journal.json"
"""in a folder that is being packed"""
PACKED: dict[str, Callable[[Path], Any]] = {
    "records": Records,
    "arrays": Arrays,
    "table": Table,
    "tars": Tars.packed,
}


class Source(Protocol):
    """A map-style data set.

    Some also have ``where(index)``, which tells where a sample comes from, and, where their
    ``gives_batches`` is true, ``batch(indices)``, which gives a whole batch at once.
    """

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> Any: ...


def open_source(spec: Any, *, skipped: list[Skipped] | None = None) -> Source:
    """The data set that ``spec`` names; one that is a data set already is given back.

    A folder of `outpace pack`, of LitData, of MDS, of Hugging Face's `save_to_disk`, another folder, a
    .tar, a folder or a list of them, a .csv, .jsonl, .parquet or .arrow, a folder of parts of one, an
    address (https://, s3://), or "module:name": an object, or what a function or class of that name gives.
    ``skipped``: takes folders that cannot be read. Raises DataError where there is no such data set.
    """
    if isinstance(spec, list | tuple) and spec and all(_is_path(part) for part in spec):
        return _tars([os.fspath(part) for part in spec])
    if not _is_path(spec):
        if hasattr(spec, "__len__") and hasattr(spec, "__getitem__") and not is_iterable(spec):
            return spec  # type: ignore[no-any-return]
        raise UsageError(f"a {type(spec).__name__} is no data set", "it needs len() and [index]")
    if is_remote(str(spec)):
        return Remote(str(spec))
    path = Path(spec)
    if path.is_dir():
        return _folder(path, skipped)
    if path.suffix.lower() in TABLES and path.exists():
        return Table(path)
    if path.suffix.lower() == ".tar" and path.exists():
        return Tars([path])
    if not path.exists() and OBJECT.fullmatch(str(spec)):
        return named(str(spec))
    if path.exists():
        known = ", ".join((".tar", *TABLES))
        raise DataError(f"{spec}: not a kind of file that is known", f"known are folders, {known}")
    raise DataError(f"there is no {spec}", "name a folder, a tar, a table, or module:name")


def is_iterable(source: Any) -> bool:
    """Whether it is torch's data set that only gives one sample after the other, which has a method for
    [index] that does nothing. Without importing torch.
    """
    data = sys.modules.get("torch.utils.data")
    return data is not None and isinstance(source, data.IterableDataset)


def _is_path(spec: Any) -> bool:
    return isinstance(spec, str | os.PathLike)


def _folder(path: Path, skipped: list[Skipped] | None) -> Source:
    if is_pack(path):
        return PACKED[read_meta(path).kind](path)  # type: ignore[no-any-return]
    if is_unfinished(path):
        raise DataError(
            f"{path}: packing was not finished", "give the same `outpace pack` again: it goes on"
        )
    if (source := of_others(path)) is not None:
        return source
    names = names_below(str(path), skipped)
    kind, data = told_apart(names)
    if kind == "tars":
        return Tars([path / name for name in data])
    return Table(path) if kind == "table" else Files(path, names)


def is_unfinished(path: Path) -> bool:
    """Whether a folder is one that packing has begun and not ended: others have a journal.json too."""
    from outpace.serve.packing import Journal

    return Journal.load(path) is not None


def table_files(path: Path) -> list[Path]:
    """The file of a table, or its parts in a folder; none of anything else."""
    if not path.is_dir():
        return [path] if path.is_file() and path.suffix.lower() in TABLES else []
    others = is_unfinished(path) or any((path / name).exists() for name in (SPLITS, STATE))
    with contextlib.suppress(OSError):
        if not others and any(path.suffix.lower() in TABLES for path in path.iterdir()):
            kind, _ = told_apart(names_below(str(path), []))
            return parts_of(path) if kind == "table" else []
    return []


def of_others(path: Path) -> Source | None:
    """What another package wrote into a folder; None of other folders."""
    if (path / SPLITS).is_file():
        with contextlib.suppress(OSError, ValueError, KeyError):
            splits = json.loads((path / SPLITS).read_bytes())["splits"]
            raise DataError(
                f"{path} holds {len(splits)} data sets: {', '.join(splits)}",
                f"name one of them: {path / splits[0]}",
            )
    if (path / STATE).is_file() and (path / INFO).is_file():
        return HuggingFace(path)
    try:
        index = json.loads((path / INDEX).read_bytes())
    except (OSError, ValueError):
        return None
    for parts, opened in (({"shards", "version"}, open_mds), ({"chunks", "config"}, open_litdata)):
        if isinstance(index, dict) and parts <= index.keys():
            try:
                return opened(path, index)
            except (LookupError, TypeError, ValueError) as error:
                raise unreadable(path / INDEX, error) from error
    return None


def _tars(paths: Sequence[str]) -> Source:
    for path in paths:
        if not path.lower().endswith(".tar"):
            raise UsageError(
                f"{path}: several sources are to be tars",
                "name one source, or tars; texts that are samples themselves go as numpy.array(texts)",
            )
    return Tars(paths)


def named(spec: str) -> Source:
    """``module:name``, looked for from the working folder as well."""
    module, _, name = spec.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
        if not hasattr(found, "__getitem__") or isinstance(found, type):
            found = found()
    except SystemExit as end:
        raise DataError(
            f"{spec}: its module ended the program, with exit code {end.code or 0}",
            "keep what only a script does below: if __name__ == '__main__':",
        ) from None
    except Exception as error:
        raise DataError(f"{spec}: {type(error).__name__}: {error}") from error
    for needed in ("__len__", "__getitem__"):
        if not hasattr(found, needed) or (needed == "__getitem__" and is_iterable(found)):
            kind = type(found).__name__
            raise DataError(
                f"{spec}: a {kind} without {needed}", "a map-style data set has len and [index]"
            )
    return found  # type: ignore[no-any-return]
