"""The drawing of lr_finder's sweeps."""

from __future__ import annotations

import math
from typing import Any
from xml.etree import ElementTree

import pytest

from outpace.errors import UsageError
from outpace.train.drawing import HEIGHT, LEFT, TOP, WIDTH, svg
from outpace.train.strategies import Constant, LrFinder
from outpace.train.sweep import Found, Sweeps
from tests.train.toys import fit

NAMES = "{http://www.w3.org/2000/svg}"


def parts(text: str, kind: str) -> list[Any]:
    return ElementTree.fromstring(text).findall(f"{NAMES}{kind}")


def made() -> Sweeps:
    """Two sweeps over five decades that fall by 1, and then blow up, the second for good."""
    rates = [1e-5 * 10 ** (i / 10) for i in range(51)]
    fall = [-i / 40 for i in range(41)]
    return Sweeps(rates, [fall + [0.0] * 10, [*fall, math.inf]], 2.0)


def test_each_sweep_and_their_middle_are_lines_inside_the_frame() -> None:
    lines = [
        [tuple(map(float, point.split(","))) for point in line.get("points").split()]
        for line in parts(svg(made(), None), "polyline")
    ]
    assert len(lines) == 3
    for line in lines:
        assert all(LEFT <= x <= LEFT + WIDTH and TOP <= y <= TOP + HEIGHT for x, y in line)
    assert lines[0][40] == pytest.approx((LEFT + 0.8 * WIDTH, TOP + HEIGHT), abs=0.1)
    assert lines[0][50] == pytest.approx((LEFT + WIDTH, TOP + HEIGHT / 2), abs=0.1)
    assert lines[1][-1][1] == TOP  # cut off


def test_the_rate_and_its_interval_are_where_they_belong() -> None:
    text = svg(made(), Found(1e-3, 1e-4, 1e-2))
    (rate,) = parts(text, "path")
    assert rate.get("d").startswith(f"M{LEFT + 0.4 * WIDTH:.1f},")
    area = next(each for each in parts(text, "rect") if each.get("opacity"))
    assert float(area.get("x")) == pytest.approx(LEFT + 0.2 * WIDTH, abs=0.1)
    assert float(area.get("width")) == pytest.approx(0.4 * WIDTH, abs=0.1)
    labels = [each.text for each in parts(text, "text")]
    assert {"1e-05", "0.001", "1"} <= set(labels)
    assert not parts(svg(made(), None), "path")


def test_a_finder_draws_what_it_has_made() -> None:
    finder = LrFinder()
    with pytest.raises(UsageError, match="made no sweep"):
        finder.svg()
    fit(strategies=[finder, Constant()], epochs=60)
    assert finder.made is not None
    assert len(parts(finder.svg(), "polyline")) == len(finder.made.changes) + 1
