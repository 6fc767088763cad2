"""A session as one HTML file that needs nothing else: no script, no font, no network.

Charts are drawn by the templates as SVG in percent of their width, so that they fit a phone and a
wide screen; a `Content-Security-Policy` in the file forbids every request. Text from outside is
escaped by jinja2 and freed of control characters.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

import jinja2

from outpace.records.counted import counted
from outpace.records.gain import Gain
from outpace.records.recipe_file import recipe_text
from outpace.records.session import Session
from outpace.records.trial import Curve
from outpace.report import curves, labels, sentences, words
from outpace.report.axis import Axis, Tick, linear_axis, ratio_axis

GENERATOR = '<meta name="generator" content="outpace">'


class Part(NamedTuple):
    """A part of a whole drawn as a bar: ``length`` in percent of the whole."""

    name: str
    value: str
    share: str
    length: float
    marked: bool = False
    where: str = ""
    about: str = ""


def render_html(session: Session) -> str:
    """The report of a session as one self-contained document."""
    proof = session.proof
    return (
        environment()
        .get_template("report.html.j2")
        .render(
            session=session,
            evidence=session.evidence,
            generator=GENERATOR,
            verdict=sentences.verdict(session),
            ceiling=sentences.ceiling_sentence(session),
            proof_said=sentences.proof_sentence(proof),
            proof_part=sentences.part_of(proof) if proof else "",
            proof_axis=_proof_axis(session),
            overhead=sentences.overhead_sentence(session.overhead),
            steps=sentences.next_steps(session),
            ledger=list(_ledger(session)),
            ledger_span=sentences.ledger_span(session),
            memory=list(_memory(session)),
            arms_axis=_axis(*((a.gain, a.cpu_gain) for a in session.evidence.arms if not a.failed)),
            findings_axis=_axis(*((f.gain,) for f in session.findings)),
            trials_axis=_axis(*((t.predicted, t.measured) for t in session.trials)),
            proof_chart=curves.chart(proof.curves) if proof else None,
            run_chart=_run_chart(session),
            recipe=words.block(_recipe(session)),
            diff=[(_diff_kind(line), line) for line in words.block(session.diff).split("\n")],
            not_in_diff=sentences.not_in_diff(session),
            labels=labels,
        )
    )


@cache
def environment() -> jinja2.Environment:
    """Of all templates."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("outpace.report"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    filters: dict[str, Any] = {
        name: getattr(words, name)
        for name in (
            "change",
            "gain",
            "interval",
            "number",
            "plain",
            "seconds",
            "share",
            "size",
            "times",
        )
    }
    environment.filters.update(
        filters,
        rate=words.rate,
        place=words.place,
        count=counted,
        tone=_tone,
        pct=_pct,
        learning=sentences.learning_sentence,
    )
    return environment


def _recipe(session: Session) -> str:
    record = session.recipe_record
    return recipe_text(record, sentences.recipe_file(session)) if record else ""


def _pct(value: float) -> str:
    """A place on a chart as SVG and CSS write it."""
    return f"{value:.2f}%"


def _tone(gain: Gain | None) -> str:
    if gain is None:
        return "none"
    return "faster" if gain.is_gain else "slower" if gain.is_harm else "none"


def _axis(*rows: tuple[Gain | None, ...]) -> Axis:
    known = [gain for row in rows for gain in row if gain is not None]
    return ratio_axis(ratio for g in known for ratio in (g.speedup, g.low, g.high))


def _proof_axis(session: Session) -> Axis | None:
    proof = session.proof
    if proof is None or proof.difference is None or proof.high is None:
        return None
    if not words.finite(proof.difference):
        return None
    axis = linear_axis((proof.difference, proof.high, 1.25 * proof.margin), include=(0.0,))
    values = (axis.low + tick.at / 100 * (axis.high - axis.low) for tick in axis.ticks)
    ticks = zip(axis.ticks, values, strict=True)
    return axis._replace(ticks=tuple(Tick(tick.at, words.share(value)) for tick, value in ticks))


def _run_chart(session: Session) -> curves.Chart | None:
    loss = session.evidence.loss
    return curves.chart([Curve(0, False, loss.samples, loss.values)]) if loss.values else None


def _ledger(session: Session) -> Iterator[Part]:
    for row in sorted(session.ledger, key=lambda row: row.share if row.share > 0 else 0.0)[::-1]:
        yield Part(
            words.plain(row.name),
            words.seconds(row.seconds),
            words.share(row.share),
            _length(row.share, 1.0),
            labels.belongs(row.name, session.bound),
            words.place(row.where, session.target.cwd),
            labels.KINDS.get(row.name, ""),
        )


def _memory(session: Session) -> Iterator[Part]:
    kinds = session.memory.by_kind
    names = ("parameters", "gradients", "optimizer", "activations", "temporaries", "other")
    sizes = {name: getattr(kinds, name) for name in names}
    total = sum(sizes.values())
    if session.memory.peak_bytes <= 0 or total <= 0:
        return
    for name, size in sizes.items():
        yield Part(name, words.size(size), words.share(size / total), _length(size, total))


def _length(value: float, whole: float) -> float:
    return max(0.0, min(100.0, 100 * value / whole)) if words.finite(value) else 0.0


def _diff_kind(line: str) -> str:
    if line.startswith(("+++", "---")):
        return "file"
    return {"+": "plus", "-": "minus", "@": "hunk"}.get(line[:1], "same")
