"""A loader's length asked of a copy, so that whatever a sampler of the script's does to tell it is undone.

A sampler may draw its batches to count them: by a generator of its own or of another sampler, or by shuffling
lists that it keeps. So its generators are known (`held_by`), and what it may shuffle is copied (`apart`),
unless it only counts what it has.
"""

from __future__ import annotations

import copy
import dis
import functools
import itertools
from collections import deque
from types import FunctionType
from typing import Any

import torch
from torch.utils.data import DataLoader, Sampler

from outpace.seams.generators import generators_in

PLAIN = (list, tuple, dict, set, deque)
"""what a sampler may keep its order in"""
MOST_COPIED, MOST_SAMPLERS = 2_000_000, 64
"""numbers that are copied, some 0.1 s, and samplers in a list that are looked at"""
COUNTING = ("len", "math", "ceil", "floor", "int", "float", "max", "min", "round")
"""what a length is told by that needs nothing else"""


def held_by(loader: DataLoader[Any]) -> list[Any]:
    """Generators of random numbers that it, its data set and its samplers have for themselves, or theirs."""
    parts = [loader, loader.dataset]
    ahead = [loader.sampler, loader.batch_sampler]
    while ahead:
        one = ahead.pop()
        if not any(one is part for part in parts):
            parts.append(one)
            for name, value in getattr(one, "__dict__", {}).items():
                several = list(value) if isinstance(value, (list, tuple)) else [value]
                ahead += [each for each in several[:MOST_SAMPLERS] if _is_sampler(name, each)]
    return list(itertools.chain.from_iterable(map(generators_in, parts)))


def apart(loader: Any) -> Any:
    """A copy of a loader with copies of its samplers, and of what these may shuffle to tell their length.

    Raises ValueError where that is too much.
    """
    return Apart().copied(loader)


def copy_of(thing: Any) -> Any:
    """A copy; what its class does at an end, as to stop workers that both have, it leaves to the thing."""
    own = copy.copy(thing)
    kind: Any = type(thing)
    if own is not thing and hasattr(kind, "__del__"):
        own.__class__ = _without_end(kind)
    return own


@functools.lru_cache(maxsize=256)
def _without_end(kind: type[Any]) -> type[Any]:
    return type(kind.__name__, (kind,), {"__slots__": (), "__del__": lambda _: None})


class Apart:
    """Copies made so far."""

    def __init__(self) -> None:
        self.made: dict[int, Any] = {}
        self.left = MOST_COPIED

    def copied(self, thing: Any) -> Any:
        """A loader, or a sampler, with copies of the samplers that it has."""
        if id(thing) in self.made:
            return self.made[id(thing)]
        own = self.made[id(thing)] = copy_of(thing)
        if not hasattr(own, "__dict__"):  # None, or a list of indices
            return own
        kind: Any = type(thing)
        shuffles = not isinstance(own, DataLoader) and not only_counts(kind)
        for name, value in vars(own).items():
            if _is_sampler(name, value):
                vars(own)[name] = self.copied(value)
            elif shuffles:
                vars(own)[name] = self.contents(value)
        return own

    def contents(self, value: Any) -> Any:
        """What a sampler keeps its order in, or whatever else."""
        if isinstance(value, Sampler):
            return self.copied(value)
        if isinstance(value, torch.Tensor) or type(value).__name__ == "ndarray":
            self.take(value.nbytes // 8)
            return value.clone() if isinstance(value, torch.Tensor) else value.copy()
        if type(value) not in PLAIN:
            return value
        self.take(len(value))
        own = copy.copy(value)
        if isinstance(own, dict):
            own.update({key: self.contents(each) for key, each in own.items()})
        elif isinstance(own, tuple):
            own = tuple(map(self.contents, own))
        elif not isinstance(own, set):  # of which each is as it will always be
            for at, each in enumerate(own):
                own[at] = self.contents(each)
        return own

    def take(self, count: int) -> None:
        """So many things are copied."""
        self.left -= count
        if self.left < 0:
            raise ValueError("too much to be copied")


@functools.lru_cache(maxsize=256)
def only_counts(kind: type[Any]) -> bool:
    """Whether a sampler's class tells its length by counting what it has: it calls nothing but that."""
    method = getattr(kind, "__len__", None)
    if kind.__module__.startswith("torch.") or not isinstance(method, FunctionType):
        return True
    code = list(dis.get_instructions(method))
    calls = sum(each.opname.startswith("CALL") for each in code)
    counting = sum(
        each.opname in ("LOAD_GLOBAL", "LOAD_NAME") and each.argval in COUNTING for each in code
    )
    walks = any("ITER" in each.opname or each.opname.startswith("STORE_") for each in code)
    return calls <= counting and not walks and not _asks_more(kind, code)


def _asks_more(kind: type, code: list[dis.Instruction]) -> bool:
    """Whether it asks a method or a property of its own."""
    named = (getattr(kind, each.argval, None) for each in code if isinstance(each.argval, str))
    return any(isinstance(each, FunctionType | property) for each in named)


def _is_sampler(name: str, value: Any) -> bool:
    return isinstance(value, Sampler) or name in ("batch_sampler", "sampler")
