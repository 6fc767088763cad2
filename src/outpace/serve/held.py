"""Generators of random numbers that samples draw from, those of the data set's own among them.

Each is seeded for each sample: so a sample is the same whoever makes it, and after whichever other. A
generator is found where `outpace.measure.objects` sees it, which is not in the names of a module.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from outpace.seams.generators import NAMES, generators_kept
from outpace.serve.order import generator, seed_process
from outpace.serve.worker_seeds import generators


def held_by(**holders: Any) -> dict[str, Any]:
    """Generators that things hold, by their names and what leads there: ``source.rng``."""
    return {
        name + inside: found
        for name, holder in holders.items()
        for inside, found in generators(holder).items()
    }


def seed_all(seed: int, epoch: int, index: int, held: Mapping[str, Any], copy: int = 0) -> None:
    """Have those of the process, and those that are held, give the numbers of one sample in one epoch."""
    seed_process(seed, epoch, index, copy)
    if not held:
        return
    numbers = generator(seed, epoch, index, copy).integers(2**32, size=len(NAMES) + len(held))
    for one, number in zip(held.values(), numbers[len(NAMES) :].tolist(), strict=True):
        if isinstance(one, np.random.Generator):
            one.bit_generator.state = type(one.bit_generator)(number).state
        elif isinstance(one, random.Random | np.random.RandomState):
            one.seed(number)
        else:
            one.manual_seed(number)


@contextmanager
def all_kept(held: Mapping[str, Any]) -> Iterator[None]:
    """What is drawn inside, from them or from the process's, is drawn again after."""
    with generators_kept(*held.values()):
        yield


def in_words(streams: Sequence[str]) -> str:
    """``the process's python and numpy generators and source.rng``."""
    own = [name for name in streams if name in NAMES]
    others = [name for name in streams if name not in NAMES]
    plural = "s" if len(own) > 1 else ""
    first = [f"the process's {' and '.join(own)} generator{plural}"] if own else []
    return " and ".join([*first, *others])
