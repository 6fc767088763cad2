"""Whether a data set has changed: worker processes hold it as it was when they were forked.

A script that sets ``data.epoch``, or a transform's strength, between epochs has new workers see it, and
would have those that last from epoch to epoch not. What an array's numbers are is not looked at.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from itertools import islice
from typing import Any

import torch

MOST = 4_000
"""parts that are looked at"""
ITEMS = 64
"""of each container"""
DEPTH = 5
"""attributes of attributes, as of a transform in a list in a data set in a subset"""
PLAIN = (bool, int, float, str, bytes)


def state_of(*things: Any) -> int:
    """A number that is another one after a change."""
    parts = (part for thing in things for part in _parts(thing, DEPTH))
    return hash(tuple(islice(parts, MOST)))


def _parts(thing: Any, depth: int) -> Iterator[Hashable]:
    if thing is None or type(thing) in PLAIN:
        yield thing
        return
    yield id(thing)
    if isinstance(thing, torch.Tensor):
        if not thing.is_inference():
            yield thing._version
        return
    inside: Any = ()
    if isinstance(thing, list | tuple):
        yield len(thing)
        inside = islice(thing, ITEMS)
    elif isinstance(thing, dict):
        yield len(thing)
        inside = islice(tuple(thing.values()), ITEMS)
    elif type(attributes := getattr(thing, "__dict__", None)) is dict:
        yield from attributes
        inside = tuple(attributes.values())
    if depth:
        for one in inside:
            yield from _parts(one, depth - 1)
