"""A speed-up with its interval, and where it comes from."""

from __future__ import annotations

from typing import Literal

import msgspec

How = Literal["measured", "predicted"]


class Gain(msgspec.Struct, frozen=True):
    """A ratio of times, old over new: 2.0 is twice as fast; ``low``..``high`` is a 95 % interval."""

    speedup: float
    low: float
    high: float
    how: How = "predicted"

    @property
    def in_words(self) -> str:
        """Such as "1.50x [1.41, 1.58]", with a third digit where something next to 1 would read as 1."""
        figures = (self.speedup, self.low, self.high)
        near = any(f"{each:.2f}" == "1.00" and each != 1.0 for each in figures)
        return self.in_digits(3 if near else 2)

    def in_digits(self, digits: int) -> str:
        """The same with so many digits after the point."""
        speedup, low, high = (f"{x:.{digits}f}" for x in (self.speedup, self.low, self.high))
        return f"{speedup}x [{low}, {high}]"

    @property
    def is_gain(self) -> bool:
        """Whether the interval excludes "no gain"."""
        return self.low > 1.0

    @property
    def is_harm(self) -> bool:
        """Whether the interval excludes anything but a loss."""
        return self.high < 1.0


NO_GAIN = Gain(1.0, 1.0, 1.0)
