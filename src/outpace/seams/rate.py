"""The learning rate: an optimizer steps with another one than the script set, and shows the script's.

The script's own value is back after each step, so its scheduler and its log never see ours.
"""

from __future__ import annotations

import functools
import itertools
import weakref
from collections.abc import Callable
from typing import Any

from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils.hooks import RemovableHandle as Handle

from outpace.seams.host import on_stderr
from outpace.seams.in_place_of import Replaced
from outpace.seams.setup import Setup

Change = Callable[[float, float], float]


class RateSeam:
    """Stands around ``Optimizer.step``; ``change(rate, largest so far)`` gives the rate to step with."""

    name = "rate"

    def __init__(self) -> None:
        self.change: Change | None = None
        self.wanted: Callable[[], bool] = lambda: True
        """whether a rate may be changed by now: until then none is looked at"""
        self.handles: list[Any] = []
        self.own: weakref.WeakKeyDictionary[Optimizer, list[float]] = weakref.WeakKeyDictionary()
        """the script's rates of the optimizers whose step is under way, as it has set them"""
        self.replaced = Replaced()
        self.largest: weakref.WeakKeyDictionary[Optimizer, list[float]] = (
            weakref.WeakKeyDictionary()
        )
        """of each group, since `from_here`"""
        self.only: weakref.WeakSet[Optimizer] | None = None
        """the optimizers whose rates are changed; None: all"""
        self.beside: weakref.WeakKeyDictionary[Optimizer, tuple[Handle, Handle]] = (
            weakref.WeakKeyDictionary()
        )
        """the hooks of each optimizer before and after its step"""

    def no_others(self) -> None:
        """Optimizers that have not stepped until now keep the rates that the script gives them."""
        self.only = weakref.WeakSet(self.largest)

    def from_here(self) -> None:
        """What a group's rate is at its next step is its largest so far."""
        self.largest.clear()

    def install(self) -> None:
        """Put the seam in."""
        if not self.handles:
            self.handles = [register_optimizer_step_pre_hook(self.stand_beside)]
        self.replaced.put(Optimizer, "state_dict", self._wrap_state_dict)

    def stand_beside(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        """Be the last before the step, and the first after it: hooks of the script's may set a rate as well,
        and are to see the script's.
        """
        if optimizer not in self.beside:
            self.beside[optimizer] = (
                optimizer.register_step_pre_hook(self.before_step),
                optimizer.register_step_post_hook(self.after_step),
            )
        before, after = self.beside[optimizer]
        # torch has no public way to be called there; without this one the hooks of the script's come between.
        for name, handle in (
            ("_optimizer_step_pre_hooks", before),
            ("_optimizer_step_post_hooks", after),
        ):
            hooks: Any = getattr(optimizer, name, {})
            if handle.id in hooks:
                hooks.move_to_end(handle.id, last=handle is before)

    def _wrap_state_dict(self, original: Any) -> Any:
        """What is saved after a step that Ctrl-C has cut short has the script's rates."""
        seam = self

        @functools.wraps(original)
        def state_dict(optimizer: Optimizer) -> dict[str, Any]:
            seam.put_back(optimizer)
            saved: dict[str, Any] = original(optimizer)
            return saved

        return state_dict

    def remove(self) -> None:
        """Take it out."""
        for handle in (*self.handles, *itertools.chain(*self.beside.values())):
            handle.remove()
        self.handles = []
        self.beside.clear()
        self.replaced.put_all_back()

    def reconcile(self, setup: Setup) -> None:
        """No Setup changes the rate."""

    def before_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        """Change the rates; of an optimizer inside of another they are changed already."""
        if self.own and optimizer not in self.own:
            return
        self.put_back(optimizer)  # a step that raised has left them changed
        if self.change is None or not self.wanted() or finds_its_rate(optimizer):
            return
        if self.only is not None and optimizer not in self.only:
            return
        groups = optimizer.param_groups
        rates = [float(group["lr"]) for group in groups]
        before = self.largest.get(optimizer, [])
        if len(before) > len(rates):
            before = []  # which of the groups is gone is not known
        before = [*before, *rates[len(before) :]]  # of groups that joined since
        self.largest[optimizer] = largest = [max(pair) for pair in zip(before, rates, strict=True)]
        try:
            changed = [self.change(*pair) for pair in zip(rates, largest, strict=True)]
        except Exception as error:
            # The hooks stay: torch is going through them.
            self.change = None
            on_stderr(f"outpace: the rate seam failed ({error!r}); the script's holds")
            return
        if changed == rates:
            return
        # A tensor itself is written to: of it its number is kept.
        self.own[optimizer] = [
            rate if hasattr(group["lr"], "fill_") else group["lr"]
            for group, rate in zip(groups, rates, strict=True)
        ]
        for group, rate in zip(groups, changed, strict=True):
            set_rate(group, rate)

    def after_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        """A step ended."""
        self.put_back(optimizer)

    def put_back(self, optimizer: Optimizer) -> None:
        """Give the script its rates back."""
        for group, own in zip(optimizer.param_groups, self.own.pop(optimizer, ()), strict=False):
            set_rate(group, own)


def finds_its_rate(optimizer: Optimizer) -> bool:
    """Whether an optimizer has no rate of the script's that could be changed, as Adafactor may, or looks for
    the length of each step along a line, as LBFGS may.
    """
    return any(
        group.get("lr") is None or group.get("line_search_fn") is not None
        for group in optimizer.param_groups
    )


def set_rate(group: dict[str, Any], rate: float) -> None:
    """Have a group of an optimizer step with another rate."""
    # A capturable optimizer keeps its rate in a tensor that it reads on the device.
    if hasattr(group["lr"], "fill_"):
        group["lr"].fill_(rate)
    else:
        group["lr"] = rate
