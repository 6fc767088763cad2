"""Whether a data set has changed: worker processes hold it as it was when they were forked.

A script that sets ``data.epoch``, or a transform's strength, between epochs has new workers see it, and
would have those that last from epoch to epoch not. What an array's numbers are is not looked at, nor the
names of a module.
"""

from __future__ import annotations

import contextlib
from collections.abc import Hashable, Iterable, Iterator
from functools import partial
from itertools import islice
from types import BuiltinMethodType, FunctionType, MethodType, ModuleType
from typing import Any

import torch

MOST = 4_000
"""parts of each thing that are looked at"""
ITEMS = 64
"""of each container"""
DEPTH = 5
"""attributes of attributes, as of a transform in a list in a data set in a subset"""
PLAIN = (bool, int, float, str, bytes)


def state_of(*things: Any) -> int:
    """A number that is another one after a change."""
    return hash(tuple(tuple(islice(_parts(thing, DEPTH), MOST)) for thing in things))


def _parts(thing: Any, depth: int) -> Iterator[Hashable]:
    if thing is None or type(thing) in PLAIN:
        yield thing
        return
    yield id(thing)
    if isinstance(thing, torch.Tensor):
        if not thing.is_inference():
            yield thing._version
        return
    inside: Iterable[Any] = ()
    if isinstance(thing, list | tuple):
        yield len(thing)
        inside = islice(thing, ITEMS)
    elif isinstance(thing, dict):
        yield len(thing)
        inside = islice(tuple(thing.values()), ITEMS)
    elif isinstance(thing, MethodType | BuiltinMethodType):
        own = thing.__self__
        inside = () if isinstance(own, ModuleType) else (own, getattr(thing, "__func__", None))
    elif isinstance(thing, partial):
        inside = (thing.func, *thing.args, *thing.keywords.values())
    elif isinstance(thing, FunctionType):
        inside = (*thing.__dict__.values(), *_closure(thing))
    elif type(attributes := getattr(thing, "__dict__", None)) is dict:
        yield from attributes
        # What is small first: a table in lists takes all that may be looked at.
        inside = sorted(attributes.values(), key=_size)
    if depth:
        for one in inside:
            yield from _parts(one, depth - 1)


def _size(value: Any) -> int:
    if value is None or type(value) in PLAIN:
        return 0
    return 1 + len(value) if isinstance(value, list | tuple | dict) else 1


def _closure(function: FunctionType) -> Iterator[Any]:
    for cell in function.__closure__ or ():
        with contextlib.suppress(ValueError):  # nothing in it yet
            yield cell.cell_contents
