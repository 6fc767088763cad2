"""A process's generators of random numbers, left as if nothing had drawn from them."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

NAMES = ("python", "numpy", "torch")
"""those of the CPU"""


@contextmanager
def generators_kept(*others: Any) -> Iterator[None]:
    """What draws random numbers inside leaves those outside as they would have been.

    ``others``: generators of the script's own that are kept as well; None for one that is not there.
    """
    restore = restoring(*others)
    try:
        yield
    finally:
        restore()


def restoring(*others: Any) -> Callable[[], None]:
    """Puts all back as they are now, when it is called; ``others`` as of `generators_kept`."""
    states = states_taken()  # not as tensors: a batch may be made in between
    own = [(other, state_of(other)) for other in others if other is not None]

    def restore() -> None:
        put_back(states)
        for other, state in own:
            set_state(other, state)

    return restore


def generators_in(thing: Any) -> list[Any]:
    """Those that are attributes of it: of Python's kind, numpy's or torch's."""
    kinds: tuple[type, ...] = (torch.Generator, random.Random)
    if "numpy" in sys.modules:
        numpy = sys.modules["numpy"].random
        kinds = (*kinds, numpy.Generator, numpy.RandomState)
    held = getattr(thing, "__dict__", {}).values()
    # The system's own has no state.
    return [e for e in held if isinstance(e, kinds) and not isinstance(e, random.SystemRandom)]


def state_of(generator: Any) -> Any:
    """That of a generator of any kind."""
    if isinstance(generator, random.Random):
        return generator.getstate()
    numbers = getattr(generator, "bit_generator", None)
    return generator.get_state() if numbers is None else numbers.state


def set_state(generator: Any, state: Any) -> None:
    """Give it that state again."""
    if isinstance(generator, random.Random):
        generator.setstate(state)
    elif hasattr(generator, "bit_generator"):
        generator.bit_generator.state = state
    else:
        generator.set_state(state)


def states_taken() -> dict[str, Any]:
    """Of all: torch's, Python's, numpy's, and CUDA's where it runs."""
    states: dict[str, Any] = {"torch": torch.get_rng_state(), **beside_torch()}
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        states["cuda"] = torch.cuda.get_rng_state_all()
    return states


def beside_torch() -> dict[str, Any]:
    """Of Python's, and of numpy's where it was imported."""
    states: dict[str, Any] = {"python": random.getstate()}
    if "numpy" in sys.modules:
        states["numpy"] = sys.modules["numpy"].random.get_state()
    return states


def put_back(states: dict[str, Any]) -> None:
    """Put those back that ``states`` has."""
    if "torch" in states:
        torch.set_rng_state(states["torch"])
    if "python" in states:
        random.setstate(states["python"])
    if "cuda" in states and torch.cuda.is_available():
        for index, state in enumerate(states["cuda"][: torch.cuda.device_count()]):
            torch.cuda.set_rng_state(state, index)
    if "numpy" in states and "numpy" in sys.modules:
        sys.modules["numpy"].random.set_state(states["numpy"])


def moved(before: dict[str, Any], after: dict[str, Any]) -> set[str]:
    """Those of the CPU that ``before`` has and that were drawn from in between."""
    return {n for n in NAMES if n in before and _plain(before[n]) != _plain(after[n])}


def _plain(state: Any) -> Any:
    parts = state if isinstance(state, tuple) else (state,)
    return [part.tolist() if hasattr(part, "tolist") else part for part in parts]
