"""The plan as a page: its charts say what the figures say."""

from __future__ import annotations

from msgspec.structs import replace

from outpace.plan.budget import budget
from outpace.plan.question import Question, answer
from outpace.records.plan import Estimate, Forecast, Option, Plan
from outpace.report.plan import lines, script_lines
from outpace.report.plan_html import isoloss, on_front, pareto, render_plan


def option(name: str, hours: float, usd: float | None) -> Option:
    limits = Estimate(hours, 0.9 * hours, 1.1 * hours)
    price = Estimate(usd, usd, usd) if usd is not None else None
    return Option(name, "learning", limits, price, "predicted")


PLAN = Plan(
    forecast=Forecast(Estimate(36000.0, 30000.0, 40000.0), False),
    options=(
        option("soon and dear", 1.0, 40.0),
        option("late and cheap", 8.0, 4.0),
        option("neither", 9.0, 41.0),
        option("<b>of no price</b>", 2.0, None),
    ),
)


def test_the_front_is_what_nothing_beats_twice() -> None:
    found = pareto(Question(usd_per_hour=2.0), PLAN)
    assert found is not None
    front = {dot.name for dot in found.dots if dot.on_front}
    assert front == {"soon and dear", "late and cheap"}
    assert {dot.name for dot in found.dots if dot.is_own} == {"as it is"}
    soon, late = (next(d for d in found.dots if d.name == n) for n in sorted(front, reverse=True))
    assert soon.x < late.x
    assert soon.y < late.y  # dearer lies higher, and SVG counts from above


def test_equals_are_both_on_the_front() -> None:
    among = [("a", 1.0, 1.0), ("b", 1.0, 1.0), ("c", 1.0, 2.0)]
    assert [on_front(h, usd, among) for _, h, usd in among] == [True, True, False]


def test_no_chart_without_prices() -> None:
    assert pareto(Question(), Plan(forecast=PLAN.forecast, options=())) is None


def test_names_are_escaped() -> None:
    page = render_plan(Question(usd_per_hour=2.0), PLAN, None, ["as said"])
    assert "<b>of no price" not in page
    assert "&lt;b&gt;of no price" in page
    assert "late and cheap" in page


def test_a_price_is_shown_with_whose_it_is_and_of_when() -> None:
    there = replace(option("on one T4", 1.0, 0.05), price="GCP us-central1, 2025-11-30")
    plan = Plan(forecast=PLAN.forecast, options=(there,))
    page = render_plan(Question(), plan, None, ["as said"])
    assert "(GCP us-central1, 2025-11-30)" in page
    said = list(script_lines(Question(), plan, "train.py"))
    assert "; $0.0500 (GCP us-central1, 2025-11-30); keeps" in said[1]


def test_lines_of_equal_loss_go_through_the_best_model() -> None:
    asked = Question(flops=1e21)
    plan, law = answer(asked)
    assert law is not None
    assert plan.optimal
    found = isoloss(plan, law)
    assert found is not None
    assert len(found.lines) == 5
    losses = [float(line.name.split()[1]) for line in found.lines]
    assert losses == sorted(losses, reverse=True)
    best = found.dots[0]
    middle = [tuple(map(float, p.split(","))) for p in found.lines[2].points.split()]
    nearest = min((x - best.x) ** 2 + (y - best.y) ** 2 for x, y in middle)
    assert nearest < 4.0
    assert "Lines of equal loss" in render_plan(asked, plan, law, list(lines(asked, plan, law)))


def test_a_law_without_losses_has_no_chart() -> None:
    asked = Question(flops=1e21, law="hoffmann-1")
    plan, law = answer(asked)
    assert law is not None
    assert isoloss(plan, law) is None


def test_what_was_asked_lies_where_the_lines_have_its_loss() -> None:
    """Data that are seen forty times are worth less than as many fresh ones."""
    asked = Question(params=1e9, tokens=40e9, unique_tokens=1e9)
    plan, law = answer(asked)
    assert law is not None
    assert plan.given
    found = isoloss(plan, law)
    assert found is not None
    dot = next(dot for dot in found.dots if dot.is_own)
    fresh = found.y.at(plan.given.fresh_tokens)
    assert fresh is not None
    assert dot.y == 100 - fresh
    assert plan.given.fresh_tokens < 0.5 * plan.given.tokens


def test_a_page_has_all_that_was_said() -> None:
    """The parts of a step's memory, for one, of which there is no table."""
    said = ["a step takes 2 GiB, measured", "  <activations>  1.5 GiB", "a step computes 3 GFLOP"]
    page = render_plan(Question(), Plan(), None, said)
    assert "<h1>a step takes 2 GiB, measured</h1>" in page
    assert "&lt;activations&gt;  1.5 GiB" in page
    assert "a step computes 3 GFLOP" in page


def test_a_page_says_what_fits() -> None:
    time, scaled = budget(3 * 3600.0, {}), replace(option("four machines", 2.0, 9.0), scale=3.5)
    plan = Plan(forecast=PLAN.forecast, options=(scaled, *PLAN.options))
    page = render_plan(Question(time=time, cost=20.0, usd_per_hour=2.0), plan, None, ["as said"])
    for name, judged in (
        ("four machines", "fits"),
        ("soon and dear", "too dear"),
        ("late and cheap", "too late"),
        ("&lt;b&gt;of no price&lt;/b&gt;", "no price"),
    ):
        assert f"<td>{name}</td><td>{judged}</td>" in page
    assert "<td>3.50x</td>" in page
