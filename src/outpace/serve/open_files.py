"""Files that a data set keeps open: their place is shared by threads, and by processes that are forked.

Many data sets open theirs when the first sample is drawn, so that each worker has one of its own. To draw
samples before the workers begin would undo that: so afterwards such a data set is as if none had been
drawn. Honest limit: attributes of the data set, and of data sets and of objects of the user's classes inside
of it, are looked at, and what lists, tuples and dicts there begin with, nothing else. Files that are held
elsewhere, or by a type that is not known here, `outpace.serve.place_in_file` finds by trying.
"""

from __future__ import annotations

import contextlib
import dis
import functools
import io
import numbers
import sqlite3
import zipfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from types import CodeType, FunctionType
from typing import Any, NamedTuple, final

import numpy as np
import torch
from torch import nn
from torch.utils.data import Dataset

from outpace.serve.whose import is_users

ONE_AT_A_TIME = (
    *("h5py", "tables", "netCDF4", "lmdb", "tarfile", "soundfile", "pysam", "rasterio.io"),
    *("pandas.io.pytables", "cv2.VideoCapture"),
)
"""packages, modules and classes whose open files are not to be read by several threads at once"""
FILES = (io.IOBase, sqlite3.Connection, sqlite3.Cursor, zipfile.ZipFile, np.lib.npyio.NpzFile)
"""what has a place in a file, or a connection, of its own"""
PLAIN = (str, bytes, bytearray, numbers.Number, np.ndarray, np.generic, torch.Tensor, range)
OF_DATA = ("numpy", "pandas", "polars", "datetime", "pathlib", "random")
"""packages and modules whose objects are data too, or generators of random numbers"""
HOLDERS = (Dataset, list, tuple, dict)
MANY, MOST = 1 << 10, 1 << 14
"""things in a list, and in all, that are looked at"""
FEW = 64
"""objects in a list that are looked into"""


class Held(NamedTuple):
    """A thing and where it is: an attribute of its holder, or, as an ``item``, what lies there by a key."""

    holder: Any
    name: Any
    item: bool
    value: Any

    @property
    def place(self) -> tuple[int, Any, bool]:
        """The same as long as its holder is."""
        return id(self.holder), self.name, self.item


def holds_open_file(dataset: Any) -> bool:
    """Whether a data set, or one inside of it, keeps a file or a connection open."""
    return any(_is_open(held.value) for held in _held(dataset))


@final
class Unopened:
    """A data set as it was before samples were drawn."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset
        self.untouched = True
        """nobody but us has drawn from it since, or changed it"""
        found = list(_held(dataset))
        self.empty = {held.place: held.value is None for held in found}
        """by place that there was"""
        self.flags = {h.place: h.value for h in found if h.value is None or type(h.value) is bool}
        self.known = {id(dataset), *(id(held.value) for held in found if _may_hold(held))}
        """what was looked into, as a whole"""
        if len(found) == MOST:
            self.known &= {id(held.holder) for held in found} - {id(found[-1].holder)}

    def put_back(self) -> None:
        """Let go of what was opened since, where a data set opens it again by itself: a list that was made
        for its files as a whole. What may tell it that they are open goes with them: flags, and offsets
        that were read on opening.
        """
        self._reset(self._let_go_of(_has_open))

    def close_again(self) -> None:
        """The same of what the script has opened since, with what it sets to other values meanwhile left as
        it is: only what the functions that open a file set with it goes too.
        """
        new = self._let_go_of(_has_open)
        self._reset(new, lambda holder: _set_with(type(holder), _names(new, holder)))

    def _let_go_of(self, these: Callable[[Any], bool]) -> list[Held]:
        """What it keeps since then, as far as it is one of ``these``."""
        found = _held(self.dataset, inside=self._was_filled)
        new = [held for held in found if self._is_new(held) and these(held.value)]
        for held in reversed(new):  # of a list the last goes first
            self._let_go(held)
        return new

    def before_forks(self) -> None:
        """Have workers begin as if no sample had been drawn, but for data that were read."""
        if self.untouched:
            self.for_forks()
        else:
            self.close_again()

    def for_forks(self) -> None:
        """Let go of all that a data set keeps since then and that is of one process: a pool of threads or a
        connection, which each process that is forked is to make for itself. Plain data stay.
        """
        self._reset(self._let_go_of(lambda value: not _is_plain(value)))

    def empty_again(self) -> None:
        """Let go of all that a data set keeps since then in places of its own that were empty, as an index
        that it reads with the first sample: each worker that is forked later reads its own.
        """
        found = _held(self.dataset, inside=self._was_filled)
        self._reset([held for held in found if self._is_new(held)])

    def _is_new(self, held: Held) -> bool:
        if held.place not in self.empty:
            return id(held.holder) in self.known
        return self.empty[held.place] and held.value is not None

    def _reset(
        self, new: list[Held], names: Callable[[Any], set[str]] = lambda holder: set(vars(holder))
    ) -> None:
        """Have all that has one of these as an attribute as it was, or those of its ``names``, where all of
        it was known.
        """
        holders = {id(held.holder): held.holder for held in new if not held.item}
        for holder in (holders[each] for each in holders.keys() & self.known):
            for name in vars(holder).keys() & names(holder):
                place = id(holder), name, False
                if place not in self.empty:
                    vars(holder).pop(name, None)  # a frozen class bears no delattr
                elif place in self.flags:
                    vars(holder)[name] = self.flags[place]

    def _was_filled(self, held: Held) -> bool:
        return self.empty.get(held.place) is False

    def _let_go(self, held: Held) -> None:
        holder, name, item, _ = held
        there = held.place in self.empty
        if isinstance(holder, tuple) and item:
            return
        if item and there:
            holder[name] = None
        elif item:
            del holder[name]
        elif there:
            vars(holder)[name] = None
        else:
            vars(holder).pop(name, None)


@contextlib.contextmanager
def none_opened(dataset: Any) -> Iterator[Unopened]:
    """What a data set opens inside is not open after."""
    unopened = Unopened(dataset)
    try:
        yield unopened
    finally:
        unopened.put_back()


@contextlib.contextmanager
def none_drawn(dataset: Any) -> Iterator[None]:
    """After, a data set is as if no sample had been drawn inside: it keeps nothing of them."""
    with none_opened(dataset) as unopened:
        try:
            yield
        finally:
            unopened.empty_again()


def _held(dataset: Any, inside: Callable[[Held], bool] = lambda held: True) -> Iterator[Held]:
    """What a data set holds, and what that holds where it is to be looked ``inside``; outermost first."""
    return islice(_all_held(dataset, inside), MOST)


def _all_held(dataset: Any, inside: Callable[[Held], bool]) -> Iterator[Held]:
    holders, others, met = deque([dataset]), deque[Any](), {id(dataset)}
    while holders or others:  # what data sets hold themselves comes before what other objects do
        for held in _held_by((holders or others).popleft()):
            yield held
            value = held.value
            if _may_hold(held) and id(value) not in met and inside(held):
                met.add(id(value))
                (holders if isinstance(value, HOLDERS) else others).append(value)


def _may_hold(held: Held) -> bool:
    """Whether it is to be looked into: of the user's own objects each but one of many."""
    if isinstance(held.value, HOLDERS):
        return True
    kind: Any = type(held.value)
    return _is_users(kind) and not (held.item and len(held.holder) > FEW)


@functools.lru_cache(maxsize=1024)
def _is_users(kind: type) -> bool:
    return is_users(kind.__module__) and not issubclass(kind, nn.Module)


def _held_by(holder: Any) -> Iterator[Held]:
    for name, value in vars(holder).items() if hasattr(holder, "__dict__") else ():
        yield Held(holder, name, False, value)
    items: Iterable[tuple[Any, Any]] = ()
    if isinstance(holder, dict):
        items = holder.items()
    elif isinstance(holder, list | tuple):
        items = enumerate(holder)
    for name, value in islice(items, MANY):
        yield Held(holder, name, True, value)


def _names(held: Iterable[Held], holder: Any) -> set[str]:
    return {each.name for each in held if each.holder is holder and not each.item}


def _set_with(kind: type, names: set[str]) -> set[str]:
    """Attributes that are set where one of these is: by the functions of a class that set it, or call those
    that do, but for the one that makes it.
    """
    own: dict[str, CodeType] = {}
    for each in kind.__mro__:
        for name, function in vars(each).items():
            if isinstance(function, FunctionType) and name != "__init__":
                own.setdefault(name, function.__code__)
    found = {name for name, code in own.items() if _stored(code) & names}
    while more := {n for n, code in own.items() if n not in found and found & {*code.co_names}}:
        found |= more
    return names.union(*(_stored(own[name]) for name in found))


def _stored(code: CodeType) -> set[str]:
    return {each.argval for each in dis.get_instructions(code) if each.opname == "STORE_ATTR"}


def _is_plain(value: Any) -> bool:
    """Whether it is data alone, of which a list is known by what it begins with."""
    if isinstance(value, dict):
        return all(map(_is_plain, islice(value.values(), FEW)))
    if isinstance(value, list | tuple | set | frozenset):
        return all(map(_is_plain, islice(value, FEW)))
    kind = type(value)
    return value is None or isinstance(value, PLAIN) or kind.__module__.split(".")[0] in OF_DATA


def _has_open(value: Any) -> bool:
    return _is_open(value) or holds_open_file(value)


def _is_open(value: Any) -> bool:
    kind: Any = type(value)
    return isinstance(value, FILES) or _is_of_a_file(kind)


@functools.lru_cache(maxsize=1024)
def _is_of_a_file(kind: type) -> bool:
    name = f"{kind.__module__}.{kind.__qualname__}."
    return any(name.startswith(f"{each}.") for each in ONE_AT_A_TIME)
