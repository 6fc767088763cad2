"""How fast steps were in all, and by how much a mean of those to come may differ from it.

Other programs come and go: then neither the last seconds nor a few blocks tell what is to come, but the mean
of all that was seen does, the better the more often they came and went. So blocks of equal time are kept,
at the most `MOST` of them (then each two become one), and how long the machine stays as it is follows
from how alike neighbours are (the sum of their autocorrelations, cut at the first that is none: Geyer 1992).

What has not happened yet is not foreseen: a program that comes once, or a clock that is throttled for good.
"""

from __future__ import annotations

import math

from outpace.measure.statistics import student_quantile

FIRST_S = 1.0
"""of a block, at first"""
MOST = 64
FEWEST = 4
"""blocks, before anything follows from them"""
MISS = 0.2
"""of an interval of 80 %"""


class Fluctuation:
    """``note`` is told of the seconds of steps."""

    def __init__(self) -> None:
        self.blocks: list[tuple[float, float]] = []
        """seconds, and steps"""
        self.length_s = FIRST_S
        self._seconds = self._steps = 0.0
        self._told: tuple[float, float, float, float] | None = None

    def note(self, seconds: float, count: float) -> None:
        """So many steps took so long together."""
        self._seconds += seconds
        self._steps += count
        if self._seconds >= self.length_s:
            self.blocks.append((self._seconds, self._steps))
            self._seconds = self._steps = 0.0
            self._told = None
        if len(self.blocks) > MOST:
            pairs = zip(self.blocks[::2], self.blocks[1::2], strict=False)
            left = self.blocks[2 * (len(self.blocks) // 2) :]
            self.blocks = [(s + t, n + m) for (s, n), (t, m) in pairs] + left
            self.length_s *= 2

    @property
    def step_s(self) -> float | None:
        """Seconds of a step, of all blocks; None before there are enough."""
        if len(self.blocks) < FEWEST:
            return None
        return sum(s for s, _ in self.blocks) / sum(n for _, n in self.blocks)

    def limit(self, seconds: float) -> float:
        """Times as long that steps may take which are to take so long, or as short: 80 % are within it."""
        if self._told is None:
            variance, alike, independent = spread([math.log(s / n) for s, n in self.blocks])
            reach = student_quantile(max(1, int(independent - 1)), MISS)
            self._told = variance, alike, independent, reach
        variance, alike, independent, reach = self._told
        to_come = max(1.0, seconds / self.length_s / alike)
        return math.exp(reach * math.sqrt(variance * (1 / independent + 1 / to_come)))


def spread(values: list[float]) -> tuple[float, float, float]:
    """Their variance, how many neighbours are worth one of them, and how many are worth all."""
    count = len(values)
    if count < FEWEST:
        return 0.0, 1.0, float(max(1, count))
    middle = sum(values) / count
    off = [value - middle for value in values]
    variance, alike = sum(value * value for value in off) / count, 1.0
    for lag in range(1, count // 2 + 1):
        product = sum(a * b for a, b in zip(off, off[lag:], strict=False)) / count
        if product <= 0:
            break
        alike += 2 * product / variance
    independent = max(1.0, count / alike)
    return variance * independent / max(0.5, independent - 1), alike, independent
