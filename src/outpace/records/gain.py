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
        """Such as "1.50x [1.41, 1.58]"."""
        return f"{self.speedup:.2f}x [{self.low:.2f}, {self.high:.2f}]"

    @property
    def is_gain(self) -> bool:
        """Whether the interval excludes "no gain"."""
        return self.low > 1.0

    @property
    def is_harm(self) -> bool:
        """Whether the interval excludes anything but a loss."""
        return self.high < 1.0


NO_GAIN = Gain(1.0, 1.0, 1.0)
