"""A training as one HTML file: whole, asking for nothing, and drawn over time."""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec
import pytest

from outpace.records.training import Training
from outpace.report.training_html import render_training
from tests.report import report_trainings as made
from tests.report.test_html import Page

SECTIONS = ["verdict", "course", "tried", "machine"]


def text_of(found: Training) -> str:
    """Without tags; cells of a table are words of their own."""
    return " ".join(re.sub("<[^>]+>", " ", render_training(found)).split())


@pytest.mark.parametrize("make", made.ALL)
def test_is_balanced_and_asks_for_nothing(make: Callable[[], Training]) -> None:
    html = render_training(make())
    page = Page(html)
    assert [name for name in page.ids if name not in ("seeds", "rates")] == SECTIONS
    assert ("rates" in page.ids) == (make().rates is not None)
    assert ("seeds" in page.ids) == bool(make().kept)
    assert all(link.startswith(("#", "data:")) for link in page.links)
    assert not {"script", "img", "iframe", "object", "embed"} & set(page.tags)
    assert not re.search(r"url\(|@import", html)
    assert "\x1b" not in page.text


@pytest.mark.parametrize("make", made.ALL)
def test_no_number_in_a_chart_is_not_a_number(make: Callable[[], Training]) -> None:
    drawn = re.findall(r'\b(?:x|x1|x2|y1|y2|width|points|style)="([^"]*)"', render_training(make()))
    assert not [value for value in drawn if re.search("nan|inf|None", value, re.IGNORECASE)]


def lines(found: Training, kind: str) -> list[str]:
    return re.findall(f'<polyline class="{kind}" points="([^"]*)"', render_training(found))


def test_losses_and_the_metric_are_drawn_over_time() -> None:
    for kind in ("training", "validation", "metric"):
        (points,) = lines(made.trained(), kind)
        xs = [float(point.split(",")[0]) for point in points.split()]
        assert len(xs) == 30
        assert xs == sorted(xs)
        assert xs[-1] == pytest.approx(100 * 45 / 60)  # 45 s on an axis to 60 s
    assert lines(made.by_loss(), "metric") == []
    assert lines(made.not_validated(), "validation") == []


def test_rows_at_uneven_times_are_where_they_were() -> None:
    rows = made.rows(3)
    rows = tuple(
        msgspec.structs.replace(r, seconds=s) for r, s in zip(rows, (1, 2, 10), strict=True)
    )
    (points,) = lines(made.trained(history=rows, best=rows[2]), "metric")
    xs = [float(point.split(",")[0]) for point in points.split()]
    assert (xs[1] - xs[0]) * 8 == pytest.approx(xs[2] - xs[1], rel=0.01)


@pytest.mark.parametrize(
    ("seconds", "unit"), [(60, "seconds"), (600, "minutes"), (36_000, "hours")]
)
def test_the_axis_has_a_unit_that_suits(seconds: float, unit: str) -> None:
    rows = made.rows(30, seconds / 30)
    html = render_training(made.trained(history=rows, best=rows[-1], seconds=float(seconds)))
    assert f"by {unit} of training" in html
    (ticks,) = set(re.findall(r'<div class="x".*?</div>', html))
    last = re.findall(r">([^<]+)</span>", ticks)[-1]
    assert float(last) == pytest.approx({"seconds": 60, "minutes": 10, "hours": 10}[unit])


def test_rates_that_were_tried_are_drawn() -> None:
    html = render_training(made.with_rates())
    assert html.count('<rect class="band"') == html.count('<polyline class="rates"') == 1
    assert "0.006 was taken; the best one is from 0.002 to 0.018" in text_of(made.with_rates())


def test_the_best_row_and_the_target_are_marked() -> None:
    html = render_training(made.missed())
    assert html.count('<line class="best"') == 2
    assert html.count('<line class="target"') == 1
    assert '<line class="target"' not in render_training(made.trained())


def test_text_from_outside_is_only_text() -> None:
    page = Page(render_training(made.nasty()))
    assert "<script>alert('x')</script>" in page.text
    assert "<img src=https://example.org/x.png onerror=alert(1)>" in page.text


def test_says_what_the_training_holds() -> None:
    text = text_of(made.of_seeds())
    for part in (
        "The best accuracy is 0.9900.",
        "outpace.Trainer of Net",
        "lsuv without it 0.4120 0.5310 60 2 better, taken the signal fades to 0.002 of its size",
        "muon rate 0.01 60 0 needs two matrices large matrices",
        "one_cycle: the end is known",
        "H100, 80.0 GiB",
        "2 0.8369 3,000 45.0 s",
    ):
        assert part in text
    assert text.count("the signal fades") == 1
    assert "Nothing was tried in short trainings." in text_of(made.not_validated())
    assert "No loss was recorded." in text_of(made.empty())
