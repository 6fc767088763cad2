"""Hidden units that are dead, or at their limits: what a layer is given that follows on an activation.

What no layer follows on is a model's output, which may well be 0 or 1. A layer follows where one of its
operands is memory of the activation, or of what operators have made of it since; within a compiled region,
and across what writes a result elsewhere than it says, nobody sees that.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from outpace.measure.dispatch import memory_of
from outpace.measure.statistics import median

MOST_ACTIVATIONS = 1 << 18
"""of one layer that are looked at, or one row"""
FEWEST_ROWS = 32
"""rows of a batch to call a unit dead by"""
PRODUCTS = ("addmm", "mm", "bmm", "convolution", "linear", "baddbmm", "embedding_bag")
LIMITS = {"sigmoid": (0.001, 0.999), "tanh": (-0.999, 0.999)}


@dataclass(frozen=True, eq=False)
class Pending:
    """An activation of this step that no layer has followed yet."""

    name: str
    layer: str
    out: torch.Tensor
    units: int
    """the dimension of its units"""
    made: dict[int, torch.UntypedStorage]
    """memory of what was made of it, by its address"""


class Activations:
    """What the operators of some steps have shown."""

    def __init__(self) -> None:
        self.dead: dict[str, list[float]] = {}
        self.saturated: dict[str, list[float]] = {}
        self.seen: Counter[str] = Counter()
        self.pending: list[Pending] = []
        self.convolved = False
        """the last layer was a convolution"""

    def begin(self) -> None:
        """What comes next is another forward pass: what waits is the output of the one before."""
        self.pending.clear()
        self.seen.clear()

    def see(self, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], out: Any) -> None:
        """An operator of a forward pass has run."""
        given = memory_of([args, kwargs]) if self.pending else {}
        fed = [each for each in self.pending if not given.keys().isdisjoint(each.made)]
        if name in PRODUCTS:
            self.convolved = name == "convolution"
            for each in fed:
                self.pending.remove(each)
                self._judge(each, out)
            return
        for each in fed:
            each.made.update(memory_of(out))
        if name in ("relu", *LIMITS) and isinstance(out, torch.Tensor) and out.dim() > 1:
            self.seen[name] += 1
            units, layer = _unit_dim(out, self.convolved), f"{name} {self.seen[name]}"
            self.pending.append(Pending(name, layer, out.detach(), units, memory_of(out)))

    def _judge(self, hidden: Pending, made: Any) -> None:
        """Units that are off harm where they narrow the net: where fewer are on than the layer makes of
        them.
        """
        name, layer, out, units = hidden.name, hidden.layer, hidden.out, hidden.units
        if name != "relu":
            low, high = LIMITS[name]
            some = _some(out)
            share = int(((some < low) | (some > high)).sum()) / max(1, some.numel())
            self.saturated.setdefault(layer, []).append(share)
        elif out.numel() >= FEWEST_ROWS * out.shape[units]:
            tensor = isinstance(made, torch.Tensor) and made.dim()
            into = made.shape[_unit_dim(made, self.convolved)] if tensor else 0
            dead = _never_on(out, units)
            narrows = (1 - dead) * out.shape[units] < into
            self.dead.setdefault(layer, []).append(dead if narrows else 0.0)


def worst(shares: dict[str, list[float]]) -> tuple[float, str | None]:
    """The largest of the layers' shares, and its layer."""
    middle = {name: median(values) for name, values in shares.items()}
    name = max(middle, key=lambda n: middle[n], default=None)
    return (middle[name], name) if name is not None else (0.0, None)


def _unit_dim(out: torch.Tensor, convolved: bool) -> int:
    """The dimension of a layer's units: channels where it was a convolution, else the last."""
    return 1 if convolved and out.dim() > 2 else out.dim() - 1


def _never_on(out: torch.Tensor, units: int) -> float:
    """Share of units, along that dimension, that are 0 all over a batch."""
    others = [d for d in range(out.dim()) if d != units]
    return float((out.amax(dim=others) == 0).float().mean())


def _some(out: torch.Tensor) -> torch.Tensor:
    """Rows of an activation, evenly apart: what a look takes must not be of a batch's size."""
    return out[:: math.ceil(out.numel() / MOST_ACTIVATIONS) or 1]
