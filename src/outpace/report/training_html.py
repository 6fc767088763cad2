"""A training as one HTML file, with its losses and its metric over time."""

from __future__ import annotations

from typing import NamedTuple

from outpace.records.training import Training
from outpace.report import curves, training, words
from outpace.report.html import GENERATOR, environment
from outpace.report.rate_chart import rate_chart

UNITS = ((7200.0, 3600.0, "hours"), (120.0, 60.0, "minutes"), (0.0, 1.0, "seconds"))
"""from how many seconds on, how long it is, and its name"""
KINDS = {"training loss": "training", "validation loss": "validation"}
"""classes of lines; another is the metric's"""


class Plot(NamedTuple):
    """A chart, and where on its axes the best row and the target are, in percent."""

    title: str
    chart: curves.Chart
    best: float | None
    target: float | None


def render_training(found: Training) -> str:
    """The report of a training as one self-contained document."""
    head, rows, left_out = training.history(found)
    scale, unit = _unit(found.seconds)
    return (
        environment()
        .get_template("training.html.j2")
        .render(
            training=found,
            generator=GENERATOR,
            source=training.source(found),
            verdict=training.verdict(found),
            measure=training.measure(found),
            plots=_plots(found, scale),
            unit=unit,
            history_head=head,
            history=rows,
            left_out=left_out,
            about_tried=training.ABOUT_TRIED,
            nothing_tried=training.NOTHING_TRIED,
            tried_head=training.TRIED,
            tried=training.tried(found),
            rate_chart=rate_chart(found.rates) if found.rates is not None else None,
            about_rates=training.about_rates(found.rates) if found.rates is not None else "",
            rates_head=training.RATES,
            rates=training.rates(found.rates) if found.rates is not None else [],
            seeds_head=training.seeds_head(found),
            seeds=training.seeds(found),
            notes=training.notes(found),
            machine=list(training.machine(found.machine)),
        )
    )


def _unit(seconds: float) -> tuple[float, str]:
    """Seconds of the unit that so long a time is told in, and its name."""
    return next(((each, name) for least, each, name in UNITS if seconds >= least), (1.0, "seconds"))


def _plots(found: Training, scale: float) -> list[Plot]:
    """Losses in one chart, a metric in another."""
    all_curves, metric = training.curves(found), training.measure(found)
    losses = [name for name in all_curves if name in KINDS]
    others = [name for name in all_curves if name not in KINDS]
    plots = []
    for names in filter(None, (losses, others)):
        judged = metric in names
        level = found.target if judged and words.finite(found.target) else None
        given = [
            curves.Given(
                0,
                KINDS.get(name, "metric"),
                [at / scale for at, _ in all_curves[name]],
                [value for _, value in all_curves[name]],
            )
            for name in names
        ]
        chart = curves.drawn(given, level)
        if chart is not None:
            best = chart.x.at(found.best.seconds / scale) if found.best else None
            target = chart.y.at(level) if level is not None else None
            plots.append(Plot(" and ".join(names), chart, best, target))
    return plots
