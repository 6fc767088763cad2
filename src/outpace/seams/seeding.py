"""Seeds: a script that fixes its own can be run with others, so that quality is judged over several.

``shift`` is added to every seed that the script sets; a script that sets none gets ``shift`` itself
as the seed of all generators when training is about to begin.
"""

from __future__ import annotations

import functools
import random
from numbers import Integral
from types import ModuleType
from typing import Any

import numpy
import torch

from outpace.seams.host import Host
from outpace.seams.in_place_of import Replaced, in_place_of
from outpace.seams.setup import Setup

MODULUS = 2**32


class SeedingSeam:
    """Stands at ``random.seed``, ``numpy.random.seed``/``default_rng`` and ``torch.manual_seed``."""

    name = "seeding"

    def __init__(self, host: Host, shift: int = 0) -> None:
        self.host = host
        self.shift = shift
        self.replaced = Replaced()
        self.plain: dict[str, Any] = {}
        """the originals, by their full names"""

    def install(self) -> None:
        """Put the seam in."""
        for owner, name in (
            (random, "seed"),
            (numpy.random, "seed"),
            (numpy.random, "default_rng"),
            (torch, "manual_seed"),
            (torch.random, "manual_seed"),
            (torch.cuda, "manual_seed"),
            (torch.cuda, "manual_seed_all"),
        ):
            self.replaced.put(owner, name, functools.partial(self.wrap, owner, name))

    def wrap(self, owner: ModuleType, name: str, original: Any) -> Any:
        """``original`` called with another seed."""
        self.plain[f"{owner.__name__}.{name}"] = original

        @in_place_of(owner, name)
        def seed(*args: Any, **kwargs: Any) -> Any:
            if self.shift and args and isinstance(args[0], Integral):
                args = (self.shifted(args[0]), *args[1:])
            elif self.shift and isinstance(kwargs.get("seed"), Integral):
                kwargs["seed"] = self.shifted(kwargs["seed"])
            return original(*args, **kwargs)

        return seed

    def shifted(self, seed: Integral) -> int:
        """Another seed, for this one: numpy's own numbers may be too small to hold it."""
        return (int(seed) + self.shift) % MODULUS

    def seed_unseeded(self, base: int) -> None:
        """Seed the generators of a process before its target begins."""
        self.plain["random.seed"](base)
        self.plain["numpy.random.seed"](base % MODULUS)
        self.plain["torch.manual_seed"](base)

    def remove(self) -> None:
        """Take it out."""
        self.replaced.put_all_back()

    def reconcile(self, setup: Setup) -> None:
        """Nothing here is run in another way."""
