"""Curves as lines on a chart of 100 by 100: losses of baseline against recipe, a panel a seed, or what
was measured of one training, in one panel.

Long curves are thinned: a point is the mean of so many steps in a row. What is not a number breaks
the line.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from outpace.records.trial import Curve
from outpace.report.axis import Axis, linear_axis

MOST_POINTS = 240
_HUGE = 1e100

Point = tuple[float, float | None]


class Line(NamedTuple):
    """One curve: unbroken stretches, each a list of points as SVG writes it. ``kind``: its class there."""

    kind: str
    stretches: tuple[str, ...]
    last: float | None


class Panel(NamedTuple):
    """The curves of one seed, or of one training."""

    seed: int
    lines: tuple[Line, ...]


class Chart(NamedTuple):
    """Panels that share their axes. ``each``: the most steps that one point is the mean of."""

    x: Axis
    y: Axis
    panels: tuple[Panel, ...]
    each: int


class Given(NamedTuple):
    """A curve before it is drawn."""

    seed: int
    kind: str
    x: Sequence[float]
    y: Sequence[float | None]


def chart(curves: Sequence[Curve]) -> Chart | None:
    """Curves by seed, or None where no curve has a number."""
    return drawn(
        [
            Given(each.seed, "recipe" if each.recipe else "baseline", each.samples, each.values)
            for each in curves
        ]
    )


def drawn(given: Sequence[Given], level: float | None = None) -> Chart | None:
    """The same of any curves. ``level``: a value that the upright axis holds."""
    thinned = [(curve, thin(curve.x, curve.y)) for curve in given]
    points = [point for _, curve in thinned for point in curve]
    if not any(value is not None for _, value in points):
        return None
    x = linear_axis((at for at, _ in points), include=(0.0,))
    y = linear_axis([*(value for _, value in points), level])
    thinned = [(curve, some) for curve, some in thinned if _last(some) is not None]
    seeds = sorted({curve.seed for curve, _ in thinned})
    panels = tuple(
        Panel(
            seed,
            tuple(
                Line(curve.kind, tuple(stretches(some, x, y)), _last(some))
                for curve, some in thinned
                if curve.seed == seed
            ),
        )
        for seed in seeds
    )
    return Chart(x, y, panels, max(_group(len(curve.y)) for curve in given))


def thin(samples: Iterable[float], values: Iterable[float | None]) -> list[Point]:
    """At most `MOST_POINTS` points; None where none of a point's values is a number."""
    pairs = list(zip(samples, values, strict=False))
    size = _group(len(pairs))
    return [_mean(pairs[at : at + size]) for at in range(0, len(pairs), size)]


def _group(points: int) -> int:
    return max(1, -(-points // MOST_POINTS))


def _mean(pairs: list[Point]) -> Point:
    known = [value for _, value in pairs if value is not None and abs(value) < _HUGE]
    middle = pairs[len(pairs) // 2][0]
    return float(middle), math.fsum(known) / len(known) if known else None


def _last(points: list[Point]) -> float | None:
    return next((value for _, value in reversed(points) if value is not None), None)


def stretches(points: Sequence[Point], x: Axis, y: Axis) -> Iterable[str]:
    """Unbroken parts of a curve, each as SVG writes its points."""
    stretch: list[str] = []
    for samples, value in [*points, (0.0, None)]:
        across, up = x.at(samples), y.at(value)
        if across is None or up is None:
            if stretch:
                yield " ".join(stretch if len(stretch) > 1 else stretch * 2)
            stretch = []
        else:
            stretch.append(f"{across:.2f},{100 - up:.2f}")
