"""How many Python objects a data set is made of: what each forked worker comes to copy.

A forked worker shares its parent's pages until it writes to them, and reading an object writes its
count of references. A list of a million paths is so copied by every worker, page by page. Numbers in
an array have no such counts, nor has text in a numpy array of fixed width or in an Arrow array.

Of large containers some items are looked at and stand for the others, so that a look takes
milliseconds and itself copies little; an object met more than once is taken for one that many share.

Honest limits: an estimate. What workers never read is counted too; of dicts and sets the first items
stand for all; what C code keeps from Python's collector is not seen.
"""

from __future__ import annotations

import contextlib
import gc
import random
import sys
import weakref
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping
from itertools import chain, islice
from time import perf_counter
from types import BuiltinFunctionType, CodeType, FrameType, FunctionType, GeneratorType, ModuleType
from typing import Any, NamedTuple

import numpy as np

SECONDS = 0.5
FEWEST = 2000
"""objects that are met in any case: a collection of a large process may take all of the time"""
MANY, FEW = 1000, 30
"""items of one container that are looked at: many, until so many objects were met as are ..."""
BROAD = 20_000
PAGE = 4096
HEAD = 16
"""of the collector, before each container"""
COUNTED = (str, bytes, tuple, frozenset, int, float, complex)
"""all of which lies at their address; the items of other containers lie elsewhere"""
OPAQUE = (type, ModuleType, CodeType, FrameType, GeneratorType, weakref.ref)
"""which lead out of the data set"""

Place = tuple[str, int]
"""a name and how many steps lead there"""
Items = tuple[list[tuple[str, Any]], float]
"""things, each with its name in what holds them, and how many each of them stands for"""


class Copied(NamedTuple):
    """Python objects of a data set, and what each forked worker that reads them comes to copy."""

    objects: int = 0
    bytes: int = 0
    holder: str = ""
    """the attribute that leads to most of them, such as ".samples" """


class Met(NamedTuple):
    """An object, the name that leads to it and how many steps it takes, and how many it stands for."""

    thing: Any
    name: str
    depth: int
    weight: float


def copied_on_write(dataset: Any, seconds: float = SECONDS) -> Copied:
    """Estimate what a forked worker that reads all of a data set comes to copy of it.

    Of a DataLoader, its data set is meant. Where the time is up, what was not reached is taken to be
    like what was.
    """
    walk = Walk(dataset.dataset if _is_loader(dataset) else dataset, seconds=seconds)
    for _ in walk:
        pass
    reached, waiting, objects, sizes = (defaultdict[Place, float](float) for _ in range(4))
    for met in walk.ahead:
        waiting[met.name, met.depth] += met.weight
    for one, (place, weight, size) in walk.seen.items():
        reached[place] += weight
        stands_for = 1.0 if one in walk.shared else weight
        objects[place] += stands_for
        sizes[place] += stands_for * size
    objects_of, bytes_of = defaultdict[str, float](float), defaultdict[str, float](float)
    for place in sizes:
        more = _unreached(place, reached, waiting)
        objects_of[place[0]] += more * objects[place]
        bytes_of[place[0]] += more * sizes[place]
    holder = max(bytes_of, key=lambda name: bytes_of[name], default="")
    return Copied(round(sum(objects_of.values())), round(sum(bytes_of.values())), holder)


def _unreached(
    place: Place, reached: Mapping[Place, float], waiting: Mapping[Place, float]
) -> float:
    """By how much a place has more than was seen: of all places on the way to it some still wait."""
    name, depth = place
    more = 1.0
    for (above, level), weight in waiting.items():
        on_the_way = level <= depth and f"{name}.".startswith(f"{above}." if above else "")
        if on_the_way and reached[above, level]:
            more *= 1 + weight / reached[above, level]
    return more


class Walk:
    """Goes through what an object holds, as far as the time allows, and notes what it meets.

    ``deep``: to the end of one thing before the next, so that what is left when the time is up is
    like what was seen; else what is near comes first.
    """

    def __init__(self, root: Any, *, seconds: float = SECONDS, deep: bool = True) -> None:
        self.until = perf_counter() + seconds
        self.deep = deep
        self.choose = random.Random(0)
        self.ahead = deque([Met(root, "", 0, 1.0)])
        self.seen: dict[int, tuple[Place, float, int]] = {}
        """by id: where it is, how many it stands for, bytes"""
        self.shared: set[int] = set()

    def __iter__(self) -> Iterator[Met]:
        """Each object once."""
        while self.ahead and (len(self.seen) < FEWEST or perf_counter() < self.until):
            met = self.ahead.pop() if self.deep else self.ahead.popleft()
            if id(met.thing) in self.seen:
                self.shared.add(id(met.thing))
                continue
            # An object may run code of its user's when it is asked what it is: a lazy import, a proxy.
            try:
                if met.thing is None or isinstance(met.thing, (bool, *OPAQUE)):
                    continue
                inside, stands_for = self.inside(met.thing)
            except Exception:
                continue
            self.seen[id(met.thing)] = (met.name, met.depth), met.weight, touched_bytes(met.thing)
            depth, weight = met.depth + 1, met.weight * stands_for
            self.ahead.extend(Met(item, met.name + name, depth, weight) for name, item in inside)
            yield met

    def inside(self, thing: Any) -> Items:
        """Some of what an object holds; a container's own methods serve, not a subclass's."""
        most = MANY if len(self.seen) < BROAD else FEW
        if isinstance(thing, np.ndarray):
            whole = thing.dtype == object
            return self._some(thing.flat, thing.size, most) if whole else ([], 1.0)
        kind: Any
        for kind in (list, tuple, deque):
            if isinstance(thing, kind):
                return self._some(_Plain(kind, thing), kind.__len__(thing), most)
        if isinstance(thing, dict):
            pairs = list(islice(dict.items(thing), most))
            return _unnamed(chain.from_iterable(pairs)), dict.__len__(thing) / max(1, len(pairs))
        for kind in (set, frozenset):
            if isinstance(thing, kind):
                some = list(islice(kind.__iter__(thing), most))
                return _unnamed(some), kind.__len__(thing) / max(1, len(some))
        return held(thing), 1.0

    def _some(self, items: Any, count: int, most: int) -> Items:
        if count <= most:
            return _unnamed(items[i] for i in range(count)), 1.0
        return _unnamed(items[i] for i in self.choose.sample(range(count), most)), count / most


class _Plain:
    """A container read by the method of its built-in type."""

    def __init__(self, kind: Any, thing: Any) -> None:
        self.kind = kind
        self.thing = thing

    def __getitem__(self, index: int) -> Any:
        return self.kind.__getitem__(self.thing, index)


def held(thing: Any) -> list[tuple[str, Any]]:
    """What an object that is no container holds: attributes, and what else the collector knows of.

    Of a function that is what its closure and its defaults hold: its module's names are not its own.
    """
    if isinstance(thing, FunctionType):
        return _unnamed([*closed_over(thing).values(), *(thing.__defaults__ or ())])
    if isinstance(thing, BuiltinFunctionType):
        return _unnamed([thing.__self__])
    if not gc.is_tracked(thing):
        return []
    attributes = getattr(thing, "__dict__", None)
    if type(attributes) is not dict:
        return _unnamed(gc.get_referents(thing))
    named = [(f".{name}", value) for name, value in attributes.items()]
    known = {id(attributes), *(id(value) for _, value in named)}
    return named + [("", other) for other in gc.get_referents(thing) if id(other) not in known]


def closed_over(function: FunctionType) -> dict[str, Any]:
    """What the variables of the functions that it stands in are, by their names."""
    found = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # not assigned yet
            found[name] = cell.cell_contents
    return found


def touched_bytes(thing: Any) -> int:
    """What lies on the pages that counting a reference to an object writes to: a page at most."""
    if type(thing) in COUNTED:
        size = sys.getsizeof(thing)
    else:
        size = type(thing).__basicsize__ + HEAD
    return min(PAGE, -(-size // 16) * 16)


def _unnamed(things: Any) -> list[tuple[str, Any]]:
    return [("", thing) for thing in things]


def _is_loader(thing: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(thing, torch.utils.data.DataLoader)
