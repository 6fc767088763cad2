"""The learning rate's way down to zero: how far it is, by the clock and by the steps."""

from __future__ import annotations

from outpace.plan.schedule import FALL, RISE, rate
from outpace.records.plan import Landed


class Descent:
    """``land``: how the rate goes down."""

    def __init__(self, land: Landed) -> None:
        self.land: Landed = land
        self.began: tuple[float, int] | None = None
        """share of the budget and steps that were behind when it began"""
        self.changed = False
        """a step was made with another rate than the script's"""
        self.falls = False
        """of a plateau only the fall is left"""
        self.share = 0.0
        """of the way that is behind"""
        self.final_rate: float | None = None
        """of the newest step, as a share of the largest rate"""

    @property
    def late(self) -> bool:
        """Whether it began so late that the rate is not to rise before."""
        return self.began is not None and self.began[0] > RISE

    def advance(self, used: float, steps: int, total: int | None) -> float:
        """Share of the way that is behind, where this of the budget and so many steps of all are.

        By the clock it never falls. How many steps there are may turn out to be more than was thought.
        """
        assert self.began is not None
        begun, first = self.began
        by_clock = (used - begun) / max(1e-9, 1.0 - begun)
        by_steps = 0.0 if total is None else (steps - first) / max(1, total - first)
        self.share = max(self.share, by_clock)
        return min(1.0, max(self.share, by_steps))

    def rate(
        self, own: float, largest: float, down: float, *, late: bool, falls: bool = False
    ) -> float:
        """The rate to step with, of the script's own and its largest, so far ``down``."""
        if self.land == "scale":
            new = own * (1.0 - down)
        elif self.land == "plateau":
            # What the script does with its rate until then it does for a reason.
            new = own * rate("plateau", 1.0 - FALL + FALL * down if falls else down)
        else:
            if self.land == "one-cycle" and late:
                down = RISE + (1.0 - RISE) * down  # too late for it to rise
            new = largest * rate(self.land, down)
        self.changed = self.changed or new != own
        if largest:  # a group that is not to learn tells nothing
            self.final_rate = new / largest
        return new
