"""A training's rate from step to step: whether it is yet to rise, and whether it has gone to nothing."""

from __future__ import annotations

import contextlib
from typing import Any

from outpace.measure.dispatch import capturing
from outpace.seams.host import Host

RESTRAINED = 3.0
"""a rate this far below its schedule's peak is a warm-up's"""
GONE = 1e-4
"""of its largest value: a rate below it changes nothing any more"""
EVERY, NOTED = 20, 32
"""steps after which a rate is noted again, at least, and share of the steps by then, as one by so many"""


class Rates:
    """The main optimizer's, whenever there was a look, and now and then."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.noted: list[tuple[int, int, float]] = []
        """the optimizer (id), steps and its rate"""
        self.next = 0
        """steps at which it is noted again"""

    def add(self, optimizer: Any) -> None:
        """Note it."""
        self.noted.append((id(optimizer), self.host.steps, rate_of(optimizer)))

    def note(self, optimizer: Any, *_: Any) -> None:
        """Now and then: a short training is over before there is another look."""
        steps = self.host.steps
        if steps < self.next or optimizer is not self.host.main_optimizer() or capturing():
            return
        self.next = steps + max(EVERY, steps // NOTED)
        with contextlib.suppress(Exception):  # a rate of the script's own making may be none
            self.add(optimizer)

    def warm_up(self, optimizer: Any) -> bool:
        """Whether a rate is yet to rise: it did since it was noted before, or is held far below what it will
        be. One that has fallen is beyond that.
        """
        now, steps = rate_of(optimizer), self.host.steps
        before = [rate for of, step, rate in self.noted if of == id(optimizer) and step < steps]
        if before and max(before) > now:
            return False
        return bool(before and before[-1] < now) or any(map(is_restrained, self.host.optimizers))

    def gone(self) -> tuple[float, float, int] | None:
        """The largest rate, the rate now, and steps since it was last seen to be no small part of that."""
        optimizer = self.host.main_optimizer()
        own = [(step, rate) for of, step, rate in self.noted if of == id(optimizer)]
        if optimizer is None or not own:
            return None
        now = rate_of(optimizer)
        largest = max(rate for _, rate in own)
        if not largest > 0 or now > GONE * largest:
            return None
        since = self.host.steps
        for step, rate in reversed(own):
            if rate > GONE * largest:
                break
            since = step
        return largest, now, self.host.steps - since


def rate_of(optimizer: Any) -> float:
    """The largest of its groups'."""
    return max((float(g.get("lr") or 0.0) for g in optimizer.param_groups), default=0.0)


def is_restrained(optimizer: Any) -> bool:
    """Whether a schedule holds a rate far below what it will be."""
    return any(
        float(group.get("lr") or 0.0) * RESTRAINED
        < max(float(group.get("max_lr") or 0.0), float(group.get("initial_lr") or 0.0))
        for group in optimizer.param_groups
    )
