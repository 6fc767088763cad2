"""Whether two workers of a DataLoader draw the same random numbers, found by starting two.

torch seeds its own, python's and numpy's generator in each worker. They are the same again where a
`worker_init_fn` sets one seed in all workers; and a generator that the data set holds is the same in
all of them, as each has a copy of it, unless it is seeded there.

The workers are those of a child process that is thrown away, with the loader's own data set and
`worker_init_fn`; what they print goes nowhere. Honest limits: a generator is found where
`outpace.measure.objects` sees it; of an iterable data set no sample is drawn, so only the packages'
generators are judged there; nothing is tried where processes cannot be forked.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import islice
from multiprocessing.connection import Connection
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from outpace.measure.objects import Walk
from outpace.seams.generators import NAMES
from outpace.serve.print_nowhere import print_nowhere

GENERATORS = (random.Random, np.random.Generator, np.random.RandomState, torch.Generator)
SHARED = [getattr(f, "__self__", None) for f in (random.random, np.random.random)] + [
    torch.default_generator
]
"""the packages' own, to which a function such as numpy.random.rand leads"""
SEEN = 20_000
"""objects of a data set that are looked through for generators"""
TRIED = 4
TRYING_S = 2.0
"""samples drawn in a worker, and seconds for them"""
PATIENCE_S = 60.0
ENDING_S = 5.0


class Seeds(NamedTuple):
    """Generators of random numbers, by name, as two workers hold them when they begin.

    "python", "numpy" and "torch" are those of the packages; ".rng" is one that the data set holds.
    """

    same: tuple[str, ...]
    """those that will draw the same numbers in both"""
    used: tuple[str, ...] | None
    """those that drawing a sample advances; None where no sample could be drawn"""

    @property
    def faulty(self) -> tuple[str, ...]:
        """Those that have samples of two workers draw alike."""
        used = NAMES if self.used is None else self.used
        return tuple(name for name in self.same if name in used)


def worker_seeds(loader: DataLoader[Any], seconds: float = PATIENCE_S) -> Seeds | None:
    """Start two of a loader's workers and compare their generators.

    None where that cannot be: without fork, in a worker, where the `worker_init_fn` fails, or after
    ``seconds``.
    """
    daemon = multiprocessing.current_process().daemon
    if daemon or "fork" not in multiprocessing.get_all_start_methods():
        return None
    context = multiprocessing.get_context("fork")
    receive, send = context.Pipe(duplex=False)
    child = context.Process(target=_try_two, args=(loader, send))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of forking beside threads, as any DataLoader does here
        child.start()
    send.close()
    found: Seeds | None = None
    try:
        if receive.poll(seconds):
            found = receive.recv()
            child.join(ENDING_S)
    except EOFError:
        pass
    finally:
        receive.close()
        _end(child)
    return found


def _end(child: Any) -> None:
    """End a child that has not ended well, with the workers that it started."""
    if child.exitcode != 0:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.kill()
        child.join()


def _try_two(loader: DataLoader[Any], send: Connection) -> None:
    """In a child: start two workers, and send on what they tell."""
    os.setsid()
    print_nowhere()
    told = (loader.multiprocessing_context or multiprocessing.get_context()).Queue()
    iterable = isinstance(loader.dataset, IterableDataset)
    twin: DataLoader[Any] = DataLoader(
        loader.dataset,
        num_workers=2,
        sampler=None if iterable else [0, 0],
        collate_fn=list,
        worker_init_fn=Telling(loader.worker_init_fn, told, tries=not iterable),
        multiprocessing_context=loader.multiprocessing_context,
        generator=torch.Generator(),  # the script's own draws no seed for this
    )
    batches = iter(twin)
    found = [told.get() for _ in range(2)]
    del batches
    if None not in found:
        (one, drawn), (other, also) = found
        same = tuple(name for name, state in one.items() if other.get(name) == state)
        send.send(Seeds(same, drawn if drawn is not None else also))


class Enough(Exception):
    """Ends a worker's start before it fetches a batch."""


class Telling:
    """A `worker_init_fn` that runs the user's and tells what the generators are like then."""

    def __init__(self, init: Callable[[int], None] | None, told: Any, *, tries: bool) -> None:
        self.init = init
        self.told = told
        self.tries = tries

    def __call__(self, worker: int) -> None:
        """Tell the generators' states, and which of them samples use; None where that fails."""
        found = None
        try:
            if self.init is not None:
                self.init(worker)
            info = get_worker_info()
            dataset = info.dataset if info is not None else None
            held = generators(dataset)
            found = states(held), used(dataset, held) if self.tries else None
        finally:
            self.told.put(found)
        raise Enough


def generators(dataset: Any) -> dict[str, Any]:
    """Generators of random numbers that a data set holds, by the attribute that leads to them; of several by
    one, as in a list, the later ones have a number too.
    """
    found: dict[str, Any] = {}
    for met in islice(Walk(dataset, deep=False), SEEN):
        thing = met.thing
        known = isinstance(thing, random.SystemRandom) or any(thing is one for one in SHARED)
        if isinstance(thing, GENERATORS) and not known:
            name, count = met.name, 1
            while name in found:
                count += 1
                name = f"{met.name} ({count})"
            found[name] = thing
    return found


def states(held: Mapping[str, Any]) -> dict[str, str]:
    """The states of the packages' generators and of those given, as text."""
    found = {
        "python": repr(random.getstate()),
        "numpy": repr(np.random.get_state(legacy=False)),
        "torch": repr(torch.get_rng_state().numpy().tobytes()),
    }
    return {**found, **{name: text_of(generator) for name, generator in held.items()}}


def text_of(generator: Any) -> str:
    """A generator's state."""
    if isinstance(generator, random.Random):
        return repr(generator.getstate())
    if isinstance(generator, np.random.Generator):
        return repr(generator.bit_generator.state)
    if isinstance(generator, np.random.RandomState):
        return repr(generator.get_state(legacy=False))
    return repr(generator.get_state().numpy().tobytes())


def used(dataset: Any, held: Mapping[str, Any]) -> tuple[str, ...] | None:
    """Generators that drawing a sample advances; None where none can be drawn.

    Each sample is drawn twice. A generator that samples seed anew, by their index for one, is both
    times left alike, and its seed in the worker does not matter.
    """
    moved: set[str] = set()
    begun = perf_counter()
    try:
        for index in range(min(TRIED, len(dataset))):
            before = states(held)
            dataset[index]
            once = states(held)
            dataset[index]
            twice = states(held)
            moved |= {name for name in once if before[name] != once[name] != twice[name]}
            if perf_counter() - begun > TRYING_S:
                break
    except Exception:
        return None
    return tuple(sorted(moved))
