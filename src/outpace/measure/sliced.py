"""Slices of one tensor, as a loop over time takes them, whose gradients are each made as large as all of it.

The gradient of ``x[:, t]`` is as large as ``x``: zeros, with what is known at ``t``. A loop over all of ``x`` makes
as many of them, and adds them up, so that its backward pass takes time that goes with the square of its
length. ``x.unbind(1)`` gives the same slices, and one gradient for all.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from outpace.measure.dispatch import tensors_in
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


@dataclass
class Sliced:
    """Counts them in a step. ``summed``: seconds in which gradients of a shape were added up."""

    cuts: defaultdict[tuple[Shape, int], Cut] = field(default_factory=lambda: defaultdict(Cut))
    summed: Counter[Shape] = field(default_factory=Counter)
    places: defaultdict[tuple[Shape, int], Counter[str]] = field(
        default_factory=lambda: defaultdict(Counter)
    )

    def meet(self, name: str, args: Any, frame: FrameType) -> None:
        """Note where the forward pass takes a slice."""
        if name in SLICES:
            whole, dim = args[0], args[1] if len(args) > 1 else 0
            self.places[tuple(whole.shape), dim % max(1, whole.dim())][place(frame)] += 1

    def see(self, name: str, args: Any, out: Any, took_s: float) -> None:
        """Count an operator of a backward pass."""
        if name in GRADIENTS:
            shape, dim = tuple(args[1]), int(args[2])
            if args[0].numel() < out.numel():
                cut = self.cuts[shape, dim % max(1, len(shape))]
                cut.count, cut.seconds = cut.count + 1, cut.seconds + took_s
        elif name in SUMS and self.cuts:
            for made in tensors_in(out):
                self.summed[tuple(made.shape)] += took_s  # type: ignore[assignment]

    def worst(self) -> tuple[float, int, str] | None:
        """Seconds that one gradient for all slices would spare, over all shapes that are sliced in loops; how
        many slices there are of those that take longest, and where these are taken.
        """
        loops = {key: cut for key, cut in self.cuts.items() if cut.count >= FEWEST and self.places[key]}
        if not loops:
            return None
        shapes = {shape for shape, _ in loops}
        spared = sum(cut.seconds * (1 - 1 / cut.count) for cut in loops.values())
        spared += sum(self.summed[shape] for shape in shapes)
        key, most = max(loops.items(), key=lambda item: item[1].seconds)
        return spared, most.count, self.places[key].most_common(1)[0][0]
