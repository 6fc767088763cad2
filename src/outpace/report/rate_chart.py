"""The short trainings of lr_finder as a chart: the loss that each ended at, over its learning rate."""

from __future__ import annotations

import math
from typing import NamedTuple

from outpace.records.training import Rates
from outpace.report import words
from outpace.report.axis import Axis, linear_axis, log_axis
from outpace.report.curves import Chart, Line, Panel, stretches


class RateChart(NamedTuple):
    """The chart, and where on its axis the rate that was set lies, and its interval's ends, in percent."""

    chart: Chart
    at: float | None
    band: tuple[float, float] | None


def rate_chart(rates: Rates) -> RateChart:
    """What is higher than before any training, or not finite, lies at the upper edge."""
    found = rates.found
    x = log_axis([*(rate for rate, _ in rates.points), *(found or ())], words.short)
    before = math.inf if rates.before is None else rates.before
    losses = [min(before, math.inf if loss is None else loss) for _, loss in rates.points]
    y = linear_axis([before, *losses])
    points = [(rate, loss) for (rate, _), loss in zip(rates.points, losses, strict=True)]
    line = Line("rates", tuple(stretches(points, x, y)), None)
    return RateChart(
        Chart(x, y, (Panel(0, (line,)),), 1),
        x.at(found[0]) if found is not None else None,
        _band(x, found) if found is not None else None,
    )


def _band(x: Axis, found: tuple[float, float, float]) -> tuple[float, float] | None:
    low, high = x.at(found[1]), x.at(found[2])
    return (low, high) if low is not None and high is not None else None
