"""A process's generators of random numbers: torch's, Python's, numpy's, and CUDA's where it runs."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

NAMES = ("python", "numpy", "torch")


def random_states() -> dict[str, Any]:
    """States of the generators, as tensors and plain values: what a checkpoint can hold."""
    states = _taken()
    version, values, gauss = states["python"]
    states["python"] = (version, torch.tensor(values, device="cpu"), gauss)
    if "numpy" in states:
        kind, keys, *rest = states["numpy"]
        states["numpy"] = (kind, torch.tensor(keys.astype("int64"), device="cpu"), *rest)
    return states


def restore_random(states: dict[str, Any]) -> None:
    """Put the generators back to `random_states`."""
    states = dict(states)
    version, values, gauss = states["python"]
    states["python"] = (version, tuple(values.tolist()), gauss)
    if "numpy" in states:
        kind, keys, *rest = states["numpy"]
        states["numpy"] = (kind, keys.numpy().astype("uint32"), *rest)
    _put_back(states)


@contextmanager
def generators_kept(*others: torch.Generator | None) -> Iterator[None]:
    """What draws random numbers inside leaves those outside as they would have been.

    ``others``: generators of the script's own that are kept as well; None for one that is not there.
    """
    states = _taken()  # not as tensors: a batch may be made in here
    own = [(other, other.get_state()) for other in others if other is not None]
    try:
        yield
    finally:
        _put_back(states)
        for other, state in own:
            other.set_state(state)


def _taken() -> dict[str, Any]:
    states: dict[str, Any] = {"torch": torch.get_rng_state(), "python": random.getstate()}
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        states["cuda"] = torch.cuda.get_rng_state_all()
    if "numpy" in sys.modules:
        states["numpy"] = sys.modules["numpy"].random.get_state()
    return states


def _put_back(states: dict[str, Any]) -> None:
    torch.set_rng_state(states["torch"])
    random.setstate(states["python"])
    if "cuda" in states and torch.cuda.is_available():
        for index, state in enumerate(states["cuda"][: torch.cuda.device_count()]):
            torch.cuda.set_rng_state(state, index)
    if "numpy" in states and "numpy" in sys.modules:
        sys.modules["numpy"].random.set_state(states["numpy"])


def moved(before: dict[str, Any], after: dict[str, Any]) -> set[str]:
    """Those of the CPU that were drawn from in between."""
    return {name for name in NAMES if not _same(before.get(name), after.get(name))}


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, tuple) and isinstance(other, tuple):
        return all(_same(*parts) for parts in zip(one, other, strict=True))
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return torch.equal(one, other)
    return bool(one == other)
