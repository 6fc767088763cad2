"""Short trainings at several rates, drawn: where a rate lies, what is cut off."""

from __future__ import annotations

import msgspec
import pytest

from outpace.records.training import Rates
from outpace.report import training
from outpace.report.rate_chart import rate_chart
from tests.report.report_trainings import RATES


def points(rates: Rates) -> list[tuple[float, float]]:
    (line,) = rate_chart(rates).chart.panels[0].lines
    (stretch,) = line.stretches
    pairs = (point.split(",") for point in stretch.split())
    return [(float(x), float(y)) for x, y in pairs]


def test_rates_lie_apart_by_their_ratios() -> None:
    drawn = points(RATES)
    first, second, third, last = (x for x, _ in drawn)
    assert third - first == pytest.approx(2 * (second - first), rel=0.1)
    assert 0 < first < last < 100
    chart = rate_chart(RATES)
    assert chart.band is not None
    assert chart.at is not None
    assert first < chart.band[0] < second < chart.at < third < chart.band[1] < last


def test_a_loss_that_is_not_finite_is_at_the_height_of_the_loss_before() -> None:
    heights = [100 - y for _, y in points(RATES)]
    chart = rate_chart(RATES).chart
    assert heights[3] == pytest.approx(chart.y.at(RATES.before), abs=0.01)
    assert heights[:3] == sorted(heights[:3], reverse=True)
    worse = msgspec.structs.replace(RATES, points=(*RATES.points[:3], (3e-2, 50.0)))
    assert points(worse) == points(RATES)


def test_where_no_rate_lowered_the_loss_none_is_marked() -> None:
    none = msgspec.structs.replace(RATES, found=None)
    assert rate_chart(none)[1:] == (None, None)
    assert training.about_rates(none).endswith("No rate lowered it.")
    assert "0.006 was taken; the best one is from 0.002 to 0.018" in training.about_rates(RATES)
    assert training.rates(RATES)[2:] == [("0.01", "1.100"), ("0.03", "∞")]
