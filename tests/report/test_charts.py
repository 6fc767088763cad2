"""Axes, bars, curves and numbers: never outside the chart, never a made-up zero."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from outpace.records.gain import Gain
from outpace.records.trial import Curve
from outpace.report import bars, words
from outpace.report.axis import linear_axis, ratio_axis
from outpace.report.curves import MOST_POINTS, chart, thin

ANY = st.floats(allow_nan=True, allow_infinity=True)


@given(st.lists(ANY, max_size=6), ANY)
def test_a_value_lies_on_the_axis_or_nowhere(values: list[float], value: float) -> None:
    for axis in (ratio_axis(values), linear_axis(values)):
        at = axis.at(value)
        assert at is None if math.isnan(value) else at is not None and -1e-6 <= at <= 100 + 1e-6
        assert len(axis.ticks) <= 12


@given(ANY, ANY, ANY)
def test_a_track_has_its_width(speedup: float, low: float, high: float) -> None:
    gain = Gain(speedup, low, high)
    assert len(bars.track(ratio_axis((speedup, low, high)), gain, 30, gain).plain) == 30
    assert len(bars.bar(speedup, 20)) == 20


@given(ANY)
def test_numbers_read_as_numbers(value: float) -> None:
    for said in (words.number(value), words.seconds(value), words.size(value), words.share(value)):
        assert said
        assert "nan" not in said
        assert len(said) < 24


def test_what_is_not_a_number_breaks_the_line() -> None:
    nan = math.nan
    curve = Curve(0, False, (1, 2, 3, 4, 5), (3.0, 2.0, nan, 1.5, 1.0))
    drawn = chart([curve])
    assert drawn is not None
    assert len(drawn.panels[0].lines[0].stretches) == 2
    assert chart([Curve(0, True, (1,), (nan,))]) is None


def test_long_curves_are_thinned_to_means() -> None:
    points = thin(range(1000), [float(i % 2) for i in range(1000)])
    assert len(points) <= MOST_POINTS
    assert {value for _, value in points} <= {0.4, 0.6, 0.5}


def test_seeds_have_panels_that_share_axes() -> None:
    curves = [Curve(s, r, (1, 2), (2.0, 1.0)) for s in (3, 1) for r in (False, True)]
    drawn = chart(curves)
    assert drawn is not None
    assert [(p.seed, len(p.lines)) for p in drawn.panels] == [(1, 2), (3, 2)]


@given(st.lists(st.floats(-1e6, 1e6) | st.just(math.nan), min_size=1, max_size=300))
def test_a_curve_fits_its_width_and_has_its_lowest_point(losses: list[float]) -> None:
    drawn = bars.curve(losses)
    assert 1 <= len(drawn) <= bars.CURVE
    assert ("▁" in drawn) == (drawn.strip() != "")


def test_losses_that_are_next_to_each_other() -> None:
    assert bars.curve([0.0, 5e-324]) == "▁█"
    assert bars.curve([1.0, 1.0]) == "▁▁"
