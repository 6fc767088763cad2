"""Where a value lies on a chart, in percent of its length."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import NamedTuple

from outpace.report import words

_LADDERS = (
    (1.25, (0.8, 0.85, 0.9, 0.95, 1, 1.05, 1.1, 1.15, 1.2, 1.25)),
    (2.2, (0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.2, 1.4, 1.6, 1.8, 2)),
    (7.0, (0.25, 0.5, 0.75, 1, 1.5, 2, 3, 4, 5, 6)),
    (60.0, (0.02, 0.05, 0.1, 0.25, 0.5, 1, 2, 4, 8, 16, 32)),
)


FEWEST_TICKS = 3


class Tick(NamedTuple):
    """A labelled place on an axis."""

    at: float
    label: str


class Axis(NamedTuple):
    """A linear or logarithmic axis from ``low`` to ``high``."""

    low: float
    high: float
    log: bool = False
    ticks: tuple[Tick, ...] = ()

    def at(self, value: float | None) -> float | None:
        """Percent of the way from low to high, kept inside; None for what is not a number."""
        if value is None or math.isnan(value):
            return None
        value = min(self.high, max(self.low, value))
        if self.log:
            return 100 * math.log(value / self.low) / math.log(self.high / self.low)
        return 100 * (value - self.low) / (self.high - self.low)


def ratio_axis(ratios: Iterable[float | None]) -> Axis:
    """A logarithmic axis over ratios that holds 1 and leaves a little room at both ends."""
    known = [r for r in ratios if r is not None and math.isfinite(r) and 1e-9 < r < 1e12]
    low, high = min([1.0, *known]), max([1.02, *known])
    room = (high / low) ** 0.05
    low, high = low / room, high * room
    axis = Axis(low, high, log=True)
    return axis._replace(ticks=_place(axis, _ratio_steps(low, high), "{:g}×".format))


def _ratio_steps(low: float, high: float) -> list[float]:
    for span, ladder in _LADDERS:
        if high / low <= span:
            return _thin([float(step) for step in ladder if low <= step <= high])
    powers = range(math.ceil(math.log10(low)), math.floor(math.log10(high)) + 1)
    return _thin([10.0**power for power in powers])


def _thin(steps: list[float]) -> list[float]:
    """At most six steps, one of them 1 where it is there."""
    keep = -(-len(steps) // 6)
    middle = steps.index(1.0) if 1.0 in steps else 0
    return [step for index, step in enumerate(steps) if (index - middle) % max(1, keep) == 0]


def linear_axis(values: Iterable[float | None], include: tuple[float, ...] = ()) -> Axis:
    """A linear axis over values, its ends at round numbers."""
    known = [v for v in (*values, *include) if v is not None and abs(v) < 1e100]
    low, high = (min(known), max(known)) if known else (0.0, 1.0)
    if not high - low > max(1e-12 * max(abs(low), abs(high)), 1e-100):
        around = abs(high) / 2 if abs(high) > 1e-100 else 0.5
        low, high = low - around, high + around
    step = _round_step((high - low) / 4)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    axis = Axis(first * step, last * step)
    return axis._replace(ticks=_place(axis, [i * step for i in range(first, last + 1)], _short))


def _round_step(raw: float) -> float:
    power = 10.0 ** math.floor(math.log10(raw))
    return next(f * power for f in (1.0, 2.0, 2.5, 5.0, 10.0) if f * power >= raw * 0.999)


def _short(value: float) -> str:
    if abs(value) >= 1e4:
        return words.rate(value, "").replace(".00", "").strip()
    return f"{value:.6g}"


def _place(axis: Axis, steps: list[float], label: Callable[[float], str]) -> tuple[Tick, ...]:
    return tuple(Tick(axis.at(step) or 0.0, label(step)) for step in steps)


def log_axis(values: Iterable[float], label: Callable[[float], str]) -> Axis:
    """A logarithmic axis over positive values of any size, a little wider than they are."""
    known = [v for v in values if 0 < v < float("inf")]
    low, high = (min(known), max(known)) if known else (1.0, 10.0)
    room = max(1.02, (high / low) ** 0.06)
    low, high = low / room, high * room
    axis = Axis(low, high, log=True)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ladders = [
        [part * 10.0**power for power in powers for part in parts]
        for parts in ((1,), (1, 3), (1, 2, 5), (1, 1.5, 2, 3, 5, 7))
    ]
    inside = [[step for step in steps if low <= step <= high] for steps in ladders]
    steps = next((found for found in inside if len(found) >= FEWEST_TICKS), inside[-1])
    return axis._replace(ticks=_place(axis, _thin(steps), label))
