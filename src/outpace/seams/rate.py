"""The learning rate: an optimizer steps with another one than the script set, and shows the script's.

The script's own value is back after each step, so its scheduler and its log never see ours.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from typing import Any

from torch.optim import Optimizer
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from outpace.seams.setup import Setup

Change = Callable[[float, float], float]


class RateSeam:
    """Stands around ``Optimizer.step``; ``change(rate, largest so far)`` gives the rate to step with."""

    name = "rate"

    def __init__(self) -> None:
        self.change: Change | None = None
        self.handles: list[Any] = []
        self.own: dict[int, list[float]] = {}
        """the script's rates of the optimizers whose step is under way"""
        self.largest: weakref.WeakKeyDictionary[Optimizer, list[float]] = (
            weakref.WeakKeyDictionary()
        )
        """of each group, since `from_here`"""

    def from_here(self) -> None:
        """What a group's rate is at its next step is its largest so far."""
        self.largest.clear()

    def install(self) -> None:
        """Put the seam in."""
        if not self.handles:
            self.handles = [
                register_optimizer_step_pre_hook(self.before_step),
                register_optimizer_step_post_hook(self.after_step),
            ]

    def remove(self) -> None:
        """Take it out."""
        for handle in self.handles:
            handle.remove()
        self.handles = []

    def reconcile(self, setup: Setup) -> None:
        """No Setup changes the rate."""

    def before_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        """Change the rates; of an optimizer inside of another they are changed already."""
        if self.own and id(optimizer) not in self.own:
            return
        self.after_step(optimizer, args, kwargs)  # a step that raised has left them changed
        if self.change is None:
            return
        groups = optimizer.param_groups
        if any(group.get("lr") is None for group in groups):
            return  # one that finds its rate itself
        rates = [float(group["lr"]) for group in groups]
        before = self.largest.get(optimizer, rates)
        self.largest[optimizer] = largest = [max(pair) for pair in zip(before, rates, strict=False)]
        try:
            changed = [self.change(*pair) for pair in zip(rates, largest, strict=True)]
        except Exception as error:
            # The hooks stay: torch is going through them.
            self.change = None
            print(f"outpace: the rate seam failed ({error!r}); the script's holds", file=sys.stderr)
            return
        self.own[id(optimizer)] = rates
        for group, rate in zip(groups, changed, strict=True):
            set_rate(group, rate)

    def after_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        """Give the script its rates back."""
        for group, own in zip(
            optimizer.param_groups, self.own.pop(id(optimizer), ()), strict=False
        ):
            set_rate(group, own)


def set_rate(group: dict[str, Any], rate: float) -> None:
    """Have a group of an optimizer step with another rate."""
    # A capturable optimizer keeps its rate in a tensor that it reads on the device.
    if hasattr(group["lr"], "fill_"):
        group["lr"].fill_(rate)
    else:
        group["lr"] = rate
