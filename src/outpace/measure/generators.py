"""A process's generators of random numbers: torch's, Python's, numpy's, and CUDA's where it runs."""

from __future__ import annotations

from typing import Any

import torch

from outpace.seams.generators import put_back, states_taken


def random_states() -> dict[str, Any]:
    """States of the generators, as tensors and plain values: what a checkpoint can hold."""
    states = states_taken()
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
    put_back(states)
