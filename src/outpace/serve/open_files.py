"""Files that a data set keeps open: their place is shared by threads, and by processes that are forked.

Many data sets open theirs when the first sample is drawn, so that each worker has one of its own. To draw
samples before the workers begin would undo that: so afterwards such a data set is as if none had been
drawn. Honest limit: attributes of the data set and of data sets inside of it are looked at, nothing else.
"""

from __future__ import annotations

import contextlib
import io
import sqlite3
import zipfile
from collections.abc import Iterator
from typing import Any, final

from torch.utils.data import Dataset

ONE_AT_A_TIME = ("h5py", "tables", "netCDF4", "lmdb", "tarfile")
"""packages whose open files are not to be read by several threads at once"""
DEPTH = 2


def holds_open_file(dataset: Any) -> bool:
    """Whether a data set, or one inside of it, keeps a file or a connection open."""
    return any(_is_open(value) for _, _, value in _attributes(dataset))


@final
class Unopened:
    """A data set as it was before samples were drawn."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset
        self.empty = {
            (id(holder), name): value is None for holder, name, value in _attributes(dataset)
        }
        """by attribute that there was"""

    def put_back(self) -> None:
        """Let go of what was opened since, where a data set opens it again by itself."""
        for holder, name, value in list(_attributes(self.dataset)):
            if not _is_open(value):
                continue
            empty = self.empty.get((id(holder), name))
            if empty is None:
                delattr(holder, name)
            elif empty:
                setattr(holder, name, None)


@contextlib.contextmanager
def none_opened(dataset: Any) -> Iterator[Unopened]:
    """What a data set opens inside is not open after."""
    unopened = Unopened(dataset)
    try:
        yield unopened
    finally:
        unopened.put_back()


def _attributes(dataset: Any, depth: int = DEPTH) -> Iterator[tuple[Any, str, Any]]:
    for name, value in vars(dataset).items() if hasattr(dataset, "__dict__") else ():
        yield dataset, name, value
        if depth and isinstance(value, Dataset):
            yield from _attributes(value, depth - 1)


def _is_open(value: Any) -> bool:
    if isinstance(value, io.IOBase | sqlite3.Connection | sqlite3.Cursor | zipfile.ZipFile):
        return True
    return type(value).__module__.split(".")[0] in ONE_AT_A_TIME
