"""Hidden units that are dead, or at their limits: what a layer is given that follows on an activation.

What no layer follows on is a model's output, which may well be 0 or 1. A layer follows where one of its
operands is memory of the activation, or of what operators have made of it since; within a compiled region,
and across what writes a result elsewhere than it says, nobody sees that.

A sigmoid may be meant to reach its limits: as a gate, a mask that is learnt, or an image. It is judged where
a layer comes before it, and one that learns after it, and where no loss is given it as well.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from outpace.measure.dispatch import tensors_in
from outpace.measure.made_by import kind, learnt_through, made_by
from outpace.measure.marks import Marks
from outpace.measure.statistics import median

MOST_ACTIVATIONS = 1 << 18
"""of one layer that are looked at, or one row"""
FEWEST_ROWS = 32
"""rows of a batch to call a unit dead by"""
PRODUCTS = ("addmm", "mm", "bmm", "convolution", "linear", "baddbmm", "embedding_bag")
LAYERS = {
    *("Addmm", "Mm", "Bmm", "Convolution", "Linear", "Baddbmm", "EmbeddingBag"),
    "CompiledFunction",
}
"""the same in a graph, and in what nobody sees them"""
LIMITS = {"sigmoid": (0.001, 0.999), "tanh": (-0.999, 0.999)}
LOSSES = ("sub", "rsub", "mse_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy")
"""of numbers, and of the right ones"""


@dataclass(frozen=True, eq=False)
class Pending:
    """An activation of this step that no layer has followed yet."""

    name: str
    layer: str
    units: int
    share: torch.Tensor
    """of its units that were never on, or of its numbers that lie at a limit"""


class Activations:
    """What the operators of some steps have shown."""

    def __init__(self) -> None:
        self.dead: dict[str, list[float]] = {}
        self.saturated: dict[str, list[float]] = {}
        self.seen: Counter[str] = Counter()
        self.pending: set[Pending] = set()
        self.hidden: dict[Pending, float] = {}
        """sigmoids that a layer followed, and their shares: a loss may yet be given them"""
        self.made = Marks[Pending]()
        """what was made of each of these"""
        self.convolved = False
        """the last layer was a convolution"""

    def begin(self) -> None:
        """What comes next is another forward pass: what waits is the output of the one before."""
        for each, share in self.hidden.items():
            self.saturated.setdefault(each.layer, []).append(share)
        self.hidden.clear()
        self.pending.clear()
        self.made.clear()
        self.seen.clear()

    def see(self, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], out: Any) -> None:
        """An operator of a forward pass has run."""
        given = tensors_in([args, kwargs]) if self.pending or self.hidden else []
        fed = [each for each in self.made.of(given) if each in self.pending or each in self.hidden]
        if name in PRODUCTS:
            self.convolved = name == "convolution"
            for each in self.pending.intersection(fed):
                self.pending.remove(each)
                self._judge(each, given, out)
            return
        for each in fed:
            if each.name in LIMITS and self._is_meant(each, name, given):
                self.pending.discard(each)
                self.hidden.pop(each, None)
            else:
                self.made.put(out, each)
        if name in ("relu", *LIMITS) and isinstance(out, torch.Tensor) and out.dim() > 1:
            self.seen[name] += 1
            self._await(name, args[0], out)

    def _await(self, name: str, given: torch.Tensor, out: torch.Tensor) -> None:
        """Whether a layer follows on an activation is to be seen: until then only its share is kept."""
        if out.layout is not torch.strided or out.is_nested or not out.is_floating_point():
            return
        numbers, dim = out.detach(), _unit_dim(out, self.convolved)
        units = numbers.shape[dim]
        if name == "relu":
            if not 0 < FEWEST_ROWS * units <= numbers.numel():
                return
            share = _never_on(numbers, dim)
        elif numbers.numel() and _follows_layer(given):
            share = _beyond(LIMITS[name], numbers)
        else:
            return
        one = Pending(name, f"{name} {self.seen[name]}", units, share)
        self.pending.add(one)
        self.made.put(out, one)

    def _judge(self, one: Pending, given: list[torch.Tensor], made: Any) -> None:
        """Units that are off harm where they narrow the net: where fewer are on than the layer makes of
        them.
        """
        share = float(one.share)
        if one.name == "relu":
            tensor = isinstance(made, torch.Tensor) and made.dim()
            into = made.shape[_unit_dim(made, self.convolved)] if tensor else 0
            narrows = (1 - share) * one.units < into
            self.dead.setdefault(one.layer, []).append(share if narrows else 0.0)
            return
        others = [each for each in self._beside(one, given) if each.requires_grad]
        if others and not any(map(_follows_layer, others)):
            self.hidden[one] = share

    def _is_meant(self, one: Pending, name: str, given: list[torch.Tensor]) -> bool:
        """Whether what is done with a sigmoid's numbers says that they may lie at its limits: to weight by
        them what learns as well, or to tell a loss how near they are to what is right.
        """
        others = self._beside(one, given)
        if name == "mul":
            return any(each.requires_grad for each in others)
        if name in LOSSES:
            right = [each.shape for each in others if not each.requires_grad]
            return any(each.shape in right for each in given if one in self.made.of(each))
        return name == "log"

    def _beside(self, one: Pending, given: list[torch.Tensor]) -> list[torch.Tensor]:
        """Those of an operator's operands that were not made of an activation."""
        return [each for each in given if one not in self.made.of(each)]


def worst(shares: dict[str, list[float]]) -> tuple[float, str | None]:
    """The largest of the layers' shares, and its layer."""
    middle = {name: median(values) for name, values in shares.items()}
    name = max(middle, key=lambda n: middle[n], default=None)
    return (middle[name], name) if name is not None else (0.0, None)


def _unit_dim(out: torch.Tensor, convolved: bool) -> int:
    """The dimension of a layer's units: channels where it was a convolution, else the last."""
    return 1 if convolved and out.dim() > 2 else out.dim() - 1


def _never_on(out: torch.Tensor, units: int) -> torch.Tensor:
    """Share of units, along that dimension, that are 0 all over a batch."""
    others = [d for d in range(out.dim()) if d != units]
    return (out.amax(dim=others) == 0).float().mean()


def _beyond(limits: tuple[float, float], out: torch.Tensor) -> torch.Tensor:
    """Share of numbers beyond limits, in rows evenly apart: a look must not take memory of a batch's size."""
    low, high = limits
    some = out[:: math.ceil(out.numel() / MOST_ACTIVATIONS) or 1]
    return ((some < low) | (some > high)).float().mean()


def _follows_layer(given: torch.Tensor) -> bool:
    """Whether a layer's output came to these numbers, and nothing that learns was multiplied by it since: how
    steep a sigmoid is may be learnt.
    """

    def through(function: Any) -> bool:
        scaled = kind(function) == "Mul" and len(learnt_through(function)) > 1
        return not scaled and kind(function) not in LAYERS

    return any(kind(one) in LAYERS for one in made_by(given, through))
