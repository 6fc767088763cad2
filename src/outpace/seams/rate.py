"""The learning rate: an optimizer steps with another one than the script set, and shows the script's.

The script's own value is back after each step, so its scheduler and its log never see ours.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.optim import Optimizer
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from outpace.seams.host import Host
from outpace.seams.setup import Setup

Change = Callable[[float, float], float]


class RateSeam:
    """Stands around ``Optimizer.step``; ``change(rate, largest so far)`` gives the rate to step with."""

    name = "rate"

    def __init__(self, host: Host) -> None:
        self.host = host
        self.change: Change | None = None
        self.handles: list[Any] = []
        self.own: dict[int, list[float]] = {}
        """the script's rates of the optimizers whose step is under way"""
        self.largest: dict[int, float] = {}
        """by group"""

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
        rates = [float(group["lr"]) for group in optimizer.param_groups]
        for group, own in zip(optimizer.param_groups, rates, strict=True):
            self.largest[id(group)] = max(own, self.largest.get(id(group), own))
        if self.change is None:
            return
        self.own[id(optimizer)] = rates
        for group, own in zip(optimizer.param_groups, rates, strict=True):
            changed = self.host.guard(self.name, self.change, own, self.largest[id(group)])
            _set(group, own if changed is None else changed)

    def after_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        """Give the script its rates back."""
        for group, own in zip(
            optimizer.param_groups, self.own.pop(id(optimizer), ()), strict=False
        ):
            _set(group, own)


def _set(group: dict[str, Any], rate: float) -> None:
    # A capturable optimizer keeps its rate in a tensor that it reads on the device.
    if hasattr(group["lr"], "fill_"):
        group["lr"].fill_(rate)
    else:
        group["lr"] = rate
