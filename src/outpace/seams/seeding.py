"""Seeds: a script that fixes its own can be run with others, so that quality is judged over several.

``shift`` is added to every seed that the script sets; a script that sets none gets ``shift`` itself
as the seed of all generators when training is about to begin.
"""

from __future__ import annotations

import random
from types import ModuleType
from typing import Any

import numpy
import torch

from outpace.seams.host import Host
from outpace.seams.in_place_of import in_place_of, put_back
from outpace.seams.setup import Setup

MODULUS = 2**32


class SeedingSeam:
    """Stands at ``random.seed``, ``numpy.random.seed``/``default_rng`` and ``torch.manual_seed``."""

    name = "seeding"

    def __init__(self, host: Host, shift: int = 0) -> None:
        self.host = host
        self.shift = shift
        self.originals: list[tuple[Any, str, Any, Any]] = []
        """where they were, and what stands there"""

    def install(self) -> None:
        """Put the seam in."""
        if self.originals:
            return
        for owner, name in (
            (random, "seed"),
            (numpy.random, "seed"),
            (numpy.random, "default_rng"),
            (torch, "manual_seed"),
            (torch.cuda, "manual_seed"),
            (torch.cuda, "manual_seed_all"),
        ):
            original = getattr(owner, name)
            ours = self.wrap(owner, name, original)
            self.originals.append((owner, name, original, ours))
            setattr(owner, name, ours)

    def wrap(self, owner: ModuleType, name: str, original: Any) -> Any:
        """``original`` called with another seed."""

        @in_place_of(owner, name)
        def seed(*args: Any, **kwargs: Any) -> Any:
            if self.shift and args and isinstance(args[0], int):
                args = ((args[0] + self.shift) % MODULUS, *args[1:])
            elif self.shift and isinstance(kwargs.get("seed"), int):
                kwargs["seed"] = (kwargs["seed"] + self.shift) % MODULUS
            return original(*args, **kwargs)

        return seed

    def seed_unseeded(self, base: int) -> None:
        """Seed the generators of a process before its target begins."""
        plain = {
            f"{owner.__name__}.{name}": original for owner, name, original, _ in self.originals
        }
        plain["random.seed"](base)
        plain["numpy.random.seed"](base % MODULUS)
        plain["torch.manual_seed"](base)

    def remove(self) -> None:
        """Take it out."""
        self.originals = [
            (owner, name, original, ours)
            for owner, name, original, ours in self.originals
            if not put_back(owner, name, ours, original)
        ]

    def reconcile(self, setup: Setup) -> None:
        """Nothing here is run in another way."""
