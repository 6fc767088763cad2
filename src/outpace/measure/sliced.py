"""Slices of one tensor, as a loop over time takes them, whose gradients are each made as large as all of it.

The gradient of ``x[:, t]`` is as large as ``x``: zeros, with what is known at ``t``. A loop over all of ``x``
makes as many of them, and adds them up, so that its backward pass takes time that goes with the square of
its length. ``x.unbind(1)`` gives the same slices, and one gradient for all.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import torch

from outpace.measure.dispatch import address_of, tensors_in
from outpace.seams.where import place

SLICES = ("select", "slice")
GRADIENTS = ("select_backward", "slice_backward")
SUMS = ("add", "add_")
FEWEST = 8
"""slices of one tensor from which on it is a loop's"""
Shape = tuple[int, ...]


@dataclass
class Cut:
    """Gradients of slices of tensors of one shape, along one dimension."""

    count: int = 0
    seconds: float = 0.0
    """in which they were made"""
    length: int = 0
    """of all of them along it"""
    ranges: bool = False
    """some are of more than one place"""


@dataclass
class Sliced:
    """Counts them in a step.

    ``summed``: seconds in which gradients of a shape were added up; ``taken``: slices of each tensor, by its
    memory.
    """

    cuts: defaultdict[tuple[Shape, int], Cut] = field(default_factory=lambda: defaultdict(Cut))
    summed: defaultdict[Shape, float] = field(default_factory=lambda: defaultdict(float))
    taken: defaultdict[tuple[Shape, int], Counter[int]] = field(
        default_factory=lambda: defaultdict(Counter)
    )
    places: defaultdict[tuple[Shape, int], Counter[str]] = field(
        default_factory=lambda: defaultdict(Counter)
    )

    written: set[int] = field(default_factory=set)
    """memory of tensors that were changed once slices of them were taken: `unbind` gives views that bear no
    change in place"""

    def meet(self, name: str, args: Any, frame: FrameType) -> None:
        """Note where the forward pass takes a slice, and where it writes to what it has taken some of."""
        if name.endswith("_") and args and isinstance(args[0], torch.Tensor):
            address = address_of(args[0])
            if any(address in taken for taken in self.taken.values()):
                self.written.add(address)
        if name in SLICES:
            whole, dim = args[0], args[1] if len(args) > 1 else 0
            key = tuple(whole.shape), dim % max(1, whole.dim())
            self.places[key][place(frame) or ""] += 1
            self.taken[key][address_of(whole)] += 1

    def see(self, name: str, args: Any, out: Any, took_s: float) -> None:
        """Count an operator of a backward pass."""
        if name in GRADIENTS:
            shape, dim = tuple(args[1]), int(args[2])
            if args[0].numel() < out.numel():
                cut = self.cuts[shape, dim % max(1, len(shape))]
                length = args[0].shape[dim] if name == "slice_backward" else 1
                cut.count, cut.seconds = cut.count + 1, cut.seconds + took_s
                cut.length, cut.ranges = cut.length + length, cut.ranges or length > 1
        elif name in SUMS and self.cuts:
            for made in tensors_in(out):
                self.summed[tuple(made.shape)] += took_s

    def worst(self) -> tuple[float, int, str] | None:
        """Seconds that one gradient for all slices would spare, over all that loops take; how many are taken
        of the tensor of which they take longest, and where.

        Sums are in place where nobody looks at them, and take about as long as what is added.
        """
        loops = {key: cut for key, cut in self.cuts.items() if self.slices(key) >= FEWEST}
        if not loops:
            return None
        made = defaultdict[Shape, float](float)
        for key, cut in loops.items():
            made[key[0]] += cut.seconds * (1 - 1 / self.slices(key))
        spared = sum(seconds + min(seconds, self.summed[shape]) for shape, seconds in made.items())
        key = max(loops, key=lambda key: loops[key].seconds)
        return spared, self.slices(key), self.places[key].most_common(1)[0][0]

    def slices(self, key: tuple[Shape, int]) -> int:
        """That are taken of one tensor, and get gradients; none where ranges overlap, as windows that slide
        do: nothing gives these with one gradient.
        """
        (shape, dim), cut = key, self.cuts[key]
        if cut.ranges and cut.length > shape[dim] * max(1, len(self.taken[key])):
            return 0
        left = (n for address, n in self.taken[key].items() if address not in self.written)
        return min(self.cuts[key].count, max(left, default=0))
