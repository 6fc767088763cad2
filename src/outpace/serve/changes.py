"""Whether a data set has changed: worker processes hold it as it was when they were forked.

A script that sets ``data.epoch``, a transform's strength or a few labels between epochs has new workers
see it, and would have those that last from epoch to epoch not. So all that a data set holds is looked at,
numbers in memory by a checksum, and what the script's own classes and functions name in their modules, as
long as that takes no longer than to begin workers anew. Honest limit: what lies in libraries' modules,
classes and objects that are named so, arrays that are not to be written to and what is kept by another
language (an open file, a generator of random numbers) are not looked at; of tensors of more than that, and of
those that are not in the CPU's memory, only what torch itself counts as a change.
"""

from __future__ import annotations

import marshal
import zlib
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import chain, islice
from pathlib import PurePath
from types import BuiltinMethodType, FunctionType, MethodType, ModuleType
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray

from outpace.serve import samples
from outpace.serve.inside import items_in, slots_of
from outpace.serve.named import by_class, by_function

MOST_S = 0.25
"""seconds that looking may take, counted by what is looked at"""
THING_S, ITEM_S, TEXT_S, BYTE_S = 6e-6, 4e-8, 3e-9, 3e-10
"""of these, for an object, an item of a list, a byte of its numbers and texts, and a byte of an array"""
CHUNK = 1024
"""items of a list that are looked at together"""
NESTED, SPREAD = 3, 1 << 16
"""levels of lists, and parts of a chunk in all, up to which it is looked at in one piece"""
PLAIN = {type(None), bool, int, float, complex, str, bytes}
NESTS = {list, tuple, dict}
OF_PANDAS = ("blocks", "axes", "values")
"""where its tables have their columns"""
OURS = __name__.partition(".")[0]
WRITTEN = {"_matrices", "_offsets", "_open", "_opened", "_wide"}
"""what our own sources write to while they read, as arrays: it tells nothing of a change"""


def state_of(*things: Any) -> int | None:
    """A number that is another one after a change; None where that cannot be told."""
    look = _Look()
    try:
        look.at(things)
    except (_TooMuch, RuntimeError):  # the latter of a dict that another thread writes to
        return None
    return look.sum


class _TooMuch(Exception):
    """More than may be looked at."""


@final
class _Look:
    """At things and all that they hold. ``sum``: the checksum of it."""

    def __init__(self) -> None:
        self.sum, self.spent_s = 0, 0.0
        self.seen: dict[int, tuple[int, Any]] = {}
        """by address: a number, and the thing, so that nothing else comes to have that address"""
        self.to_come: list[Any] = []
        self.kinds: set[type] = set()
        """classes that were looked at"""

    def at(self, things: Iterable[Any]) -> None:
        """Raises _TooMuch where that would take too long."""
        self.to_come += things
        while self.to_come:
            self._one(self.to_come.pop())

    def _one(self, thing: Any) -> None:
        self._spend(THING_S)
        if type(thing) in PLAIN:
            self._add(marshal.dumps(thing, 2))
            return
        number, _ = self.seen.setdefault(id(thing), (len(self.seen), thing))
        self._add(b"%d %s" % (number, type(thing).__qualname__.encode()))
        if number == len(self.seen) - 1:
            self._inside(thing)

    def _inside(self, thing: Any) -> None:
        if isinstance(thing, type | ModuleType):
            self._address(thing)
            if isinstance(thing, type):
                self._class(thing)
            return
        if isinstance(thing, np.ndarray):
            self._array(thing)
        elif isinstance(thing, torch.Tensor):
            self._tensor(thing)
        elif isinstance(thing, dict):
            self._items(dict.keys(thing))  # not what a class of the script's makes of it
            self._items(dict.values(thing))
        elif (items := items_in(thing)) is not None:
            self._items(items)
        elif isinstance(thing, PurePath):
            self.to_come.append(str(thing))
        else:
            self._address(thing)
            self._buffer(thing)
            self.to_come += _parts(thing)
        self._class(type(thing))
        if type(attributes := getattr(thing, "__dict__", None)) is dict:
            if type(thing).__module__.partition(".")[0] == OURS:
                attributes = {
                    name: value
                    for name, value in attributes.items()
                    if name not in WRITTEN and not isinstance(value, np.ndarray)
                }
            self._items(attributes)
            self._items(attributes.values())

    def _class(self, kind: type) -> None:
        if kind not in self.kinds:
            self.kinds.add(kind)
            self.to_come += by_class(kind)

    def _items(self, items: Iterable[Any]) -> None:
        """Of a list, or what is like one."""
        rest = iter(items)
        while some := list(islice(rest, CHUNK)):
            self._spend(len(some) * ITEM_S)
            if _flat(some, NESTED):
                data = marshal.dumps(some, 2)
                self._spend(len(data) * TEXT_S)
                self._add(data)
            else:
                self._add(b"%d" % len(some))
                self.to_come += some

    def _array(self, array: NDArray[Any]) -> None:
        self._add(f"{array.dtype} {array.shape}".encode())
        if not _may_change(array):
            self._address(array)
        elif array.dtype.hasobject:
            self._spend(array.size * ITEM_S)
            self._items(array.ravel().tolist())
        elif array.nbytes:
            self._spend(array.nbytes * BYTE_S)
            self._add(np.asarray(array).ravel(order="K").view(np.uint8))

    def _tensor(self, tensor: torch.Tensor) -> None:
        self._address(tensor)
        if not tensor.is_inference():
            self._add(b"%d" % tensor._version)
        # numpy, and what shares its memory, writes to it unseen.
        if samples.is_tensor(tensor) and tensor.device.type == "cpu":
            seconds = tensor.nbytes * BYTE_S
            if self.spent_s + seconds <= MOST_S:
                self._spend(seconds)
                self._add(samples.tensor_bytes(tensor)[1])

    def _buffer(self, thing: Any) -> None:
        """Bytes that may be written to, such as of ctypes."""
        try:
            view = memoryview(thing)
        except (TypeError, ValueError, BufferError):
            return
        with view:
            if not view.readonly and view.contiguous:
                self._spend(view.nbytes * BYTE_S)
                self._add(view)

    def _address(self, thing: Any) -> None:
        self._add(b"%d" % id(thing))

    def _add(self, data: Any) -> None:
        self.sum = zlib.crc32(data, self.sum)

    def _spend(self, seconds: float) -> None:
        self.spent_s += seconds
        if self.spent_s > MOST_S:
            raise _TooMuch


def _parts(thing: Any) -> Iterator[Any]:
    """What else a thing holds than its attributes."""
    if isinstance(thing, MethodType | BuiltinMethodType):
        own = thing.__self__
        if not isinstance(own, ModuleType):
            yield from (own, getattr(thing, "__func__", None))
    elif isinstance(thing, partial):
        yield from (thing.func, thing.args, thing.keywords)
    elif isinstance(thing, FunctionType):
        yield from (thing.__defaults__, thing.__kwdefaults__)
        yield from by_function(thing)
        for cell in thing.__closure__ or ():
            try:
                yield cell.cell_contents
            except ValueError:  # nothing in it yet
                yield None
    elif type(thing).__module__.startswith("pandas.core.internals"):
        for name in OF_PANDAS:
            yield getattr(thing, name, None)
    yield from slots_of(thing)


def _flat(items: list[Any], levels: int) -> bool:
    """Whether there is nothing in a list but numbers and texts, and such lists and dicts."""
    kinds = {kind for kind in set(map(type, items)) - PLAIN if not issubclass(kind, np.generic)}
    if not kinds or not levels or kinds - NESTS:
        return not kinds
    nests = [one for one in items if type(one) in NESTS]
    parts = (chain(one, one.values()) if type(one) is dict else one for one in nests)
    inner = list(islice(chain.from_iterable(parts), SPREAD + 1))
    return len(inner) <= SPREAD and _flat(inner, levels - 1)


def _may_change(array: NDArray[Any]) -> bool:
    base = array.base
    return array.flags.writeable or (isinstance(base, np.ndarray) and _may_change(base))
