"""The answer of `outpace plan` as one HTML file, with its two charts.

Hours against money, of a script and of each change to it: a point is on the front where no other is
both sooner and cheaper. And lines of equal loss over parameters and tokens, by the law that answered.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from outpace.plan.question import Chosen, Question
from outpace.plan.scaling import Parametric
from outpace.records.plan import Forecast, MemoryPlan, Plan
from outpace.report import words
from outpace.report.axis import Axis, log_axis
from outpace.report.html import GENERATOR, environment
from outpace.report.plan import KEEPS, mark, money, scale, short

COMPUTE = (0.01, 0.1, 1.0, 10.0, 100.0)
"""times the compute whose best losses the lines of equal loss are drawn for"""
POINTS = 60
WIDE = 30.0
"""times that a line of equal loss goes beyond its best model, to both sides"""


class Dot(NamedTuple):
    """A change on the chart, in percent."""

    x: float
    y: float
    name: str
    on_front: bool
    is_own: bool


class Line(NamedTuple):
    """A line of equal loss: points as SVG writes them."""

    name: str
    points: str


class Chart(NamedTuple):
    """Dots and lines on two axes."""

    x: Axis
    y: Axis
    dots: tuple[Dot, ...] = ()
    lines: tuple[Line, ...] = ()


def render_plan(asked: Question, plan: Plan, law: Chosen | None, lines: Sequence[str]) -> str:
    """The plan as one self-contained document; ``lines`` say it in words."""
    options = plan.options or ()
    return (
        environment()
        .get_template("plan.html.j2")
        .render(
            generator=GENERATOR,
            lines=lines,
            title=lines[0] if lines else "outpace plan",
            tone="warn" if does_not_fit(plan) else "plain",
            options=options,
            judged=asked.time is not None or asked.cost is not None,
            mark=lambda option: mark(asked, option).strip(),
            scale=scale,
            scaled=any(option.scale is not None for option in options),
            keeps=KEEPS,
            money=money,
            pareto=pareto(asked, plan),
            isoloss=isoloss(plan, law) if law is not None else None,
            law=law.name if law is not None else "",
        )
    )


def does_not_fit(plan: Plan) -> bool:
    """Whether a training is too long or too dear, or a step too large, for what was asked."""
    forecast, memory = plan.forecast, plan.memory
    too_long = isinstance(forecast, Forecast) and not forecast.fits
    return too_long or (isinstance(memory, MemoryPlan) and memory.fits is False)


def pareto(asked: Question, plan: Plan) -> Chart | None:
    """Hours against money; None where no price is known of at least two."""
    if not plan.forecast:
        return None
    hours = plan.forecast.finish_s.estimate / 3600
    priced = [option for option in plan.options or () if option.usd is not None]
    own = [("as it is", hours, hours * asked.usd_per_hour)] if asked.usd_per_hour else []
    found = own + [(o.change, o.hours.estimate, o.usd.estimate) for o in priced if o.usd]
    found = [each for each in found if each[1] > 0 and each[2] > 0]
    if len(found) < 2:
        return None
    x = log_axis((h for _, h, _ in found), lambda value: words.seconds(3600 * value))
    y = log_axis((usd for _, _, usd in found), money)
    dots = tuple(
        Dot(
            x.at(h) or 0.0,
            100 - (y.at(usd) or 0.0),
            name,
            on_front(h, usd, found),
            name == "as it is",
        )
        for name, h, usd in found
    )
    return Chart(x, y, dots)


def on_front(hours: float, usd: float, among: Sequence[tuple[str, float, float]]) -> bool:
    """Whether no other is sooner and no dearer, or cheaper and no later."""
    return not any(h <= hours and cost <= usd and (h < hours or cost < usd) for _, h, cost in among)


def isoloss(plan: Plan, chosen: Chosen) -> Chart | None:
    """Lines of equal loss around the best model; None where the law has no losses."""
    law = chosen.law
    if not plan.optimal or not isinstance(law, Parametric):
        return None
    best = plan.optimal
    compute = 6 * best.parameters * best.tokens
    given = [(plan.given.parameters, plan.given.fresh_tokens)] if plan.given else []
    drawn = []
    for factor in COMPUTE:
        size = law.parameters(factor * compute)
        loss = law.loss(size, factor * compute / 6 / size)
        drawn.append((loss, _equal(law, loss, size)))
    every = [point for _, points in drawn for point in points] + given
    x = log_axis((n for n, _ in every), short)
    y = log_axis((d for _, d in every), short)

    def place(parameters: float, tokens: float) -> tuple[float, float]:
        return x.at(parameters) or 0.0, 100 - (y.at(tokens) or 0.0)

    lines = tuple(
        Line(
            f"loss {loss:.3f}", " ".join(f"{a:.2f},{b:.2f}" for a, b in (place(*p) for p in points))
        )
        for loss, points in drawn
    )
    dots = [Dot(*place(best.parameters, best.tokens), "best", True, False)]
    dots += [Dot(*place(*point), "as asked", False, True) for point in given]
    return Chart(x, y, tuple(dots), lines)


def _equal(law: Parametric, loss: float, size: float) -> list[tuple[float, float]]:
    """(parameters, tokens) of one loss, around the model that reaches it with least compute."""
    found = []
    least = law.tokens_for(loss, size)
    for index in range(POINTS + 1):
        parameters = size * WIDE ** (2 * index / POINTS - 1)
        tokens = law.tokens_for(loss, parameters)
        if tokens < WIDE * least:
            found.append((parameters, tokens))
    return found
