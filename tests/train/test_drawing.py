"""The drawing of lr_finder's short trainings."""

from __future__ import annotations

import math
from typing import Any
from xml.etree import ElementTree

import msgspec
import pytest

from outpace.errors import UsageError
from outpace.records.training import Rates, Training
from outpace.train.drawing import HEIGHT, LEFT, TOP, WIDTH, svg
from outpace.train.rate import Climb, Found, Point
from outpace.train.strategies import Constant, LrFinder
from tests.train.toys import fit

NAMES = "{http://www.w3.org/2000/svg}"


def parts(text: str, kind: str) -> list[Any]:
    return ElementTree.fromstring(text).findall(f"{NAMES}{kind}")


MADE = Climb([Point(1e-3, 1.5), Point(1e-2, 1.0), Point(1e-1, math.inf)], 2.0, 24)


def test_each_training_is_a_point_inside_the_frame() -> None:
    dots = [
        (float(dot.get("cx")), float(dot.get("cy"))) for dot in parts(svg(MADE, None), "circle")
    ]
    assert len(dots) == 3
    assert all(LEFT <= x <= LEFT + WIDTH and TOP <= y <= TOP + HEIGHT for x, y in dots)
    assert dots[0][1] == pytest.approx(TOP + HEIGHT / 2, abs=0.1)
    assert dots[1] == pytest.approx((LEFT + WIDTH / 2, TOP + HEIGHT), abs=0.1)
    assert dots[2][1] == TOP  # cut off
    (line,) = parts(svg(MADE, None), "polyline")
    assert len(line.get("points").split()) == 3


def test_the_rate_and_its_interval_are_where_they_belong() -> None:
    text = svg(MADE, Found(1e-2, 1e-3, 1e-1))
    (rate,) = parts(text, "path")
    assert rate.get("d").startswith(f"M{LEFT + 0.5 * WIDTH:.1f},")
    area = next(each for each in parts(text, "rect") if each.get("opacity"))
    dots = [float(dot.get("cx")) for dot in parts(text, "circle")]
    assert float(area.get("x")) == pytest.approx(dots[0], abs=0.1)
    assert float(area.get("width")) == pytest.approx(dots[2] - dots[0], abs=0.2)
    labels = [each.text for each in parts(text, "text")]
    assert {"0.001", "0.01", "0.1"} <= set(labels)
    assert not parts(svg(MADE, None), "path")


def test_a_training_that_learnt_nothing_is_drawn_too() -> None:
    flat = Climb([Point(0.03, 2.0)], 2.0, 24)
    (dot,) = parts(svg(flat, None), "circle")
    assert float(dot.get("cx")) == pytest.approx(LEFT + WIDTH / 2, abs=0.1)


def test_losses_that_are_no_numbers_are_at_the_top() -> None:
    drawn = svg(Climb([Point(1e-3, 1.0), Point(1e-2, math.inf)], math.inf, 16), None)
    assert "nan" not in drawn
    assert "inf" not in drawn
    assert len(parts(drawn, "circle")) == 2


def test_a_finder_draws_what_it_has_made() -> None:
    finder = LrFinder()
    with pytest.raises(UsageError, match="tried no rate"):
        finder.svg()
    fit(strategies=[finder, Constant()], epochs=60)
    assert finder.made is not None
    assert len(parts(finder.svg(), "circle")) == len(finder.made.points)


def test_what_a_finder_has_made_is_in_the_record_of_the_training() -> None:
    finder = LrFinder()
    session = fit(strategies=[finder, Constant()], epochs=60).session
    assert session.rates is not None
    assert finder.made is not None
    assert session.rates.found == finder.found
    assert [rate for rate, _ in session.rates.points] == [each.rate for each in finder.made.points]
    assert msgspec.json.decode(msgspec.json.encode(session), type=Training).rates == session.rates
    assert fit(strategies=[Constant()], epochs=2).session.rates is None


def test_losses_that_are_no_numbers_are_none_in_the_record() -> None:
    finder = LrFinder()
    finder.made = Climb([Point(1e-3, 1.0), Point(1e-2, math.inf)], math.inf, 16)
    assert finder.rates == Rates(16, None, ((1e-3, 1.0), (1e-2, None)))
