"""A training as Markdown, for a pull request or an issue."""

from __future__ import annotations

from collections.abc import Iterator

from outpace.records.counted import counted
from outpace.records.training import Training
from outpace.report import training
from outpace.report.markdown import MARKER, code, table, text


def render_training(found: Training) -> str:
    """The report of a training as Markdown."""
    said = training.verdict(found)
    what = f"{code(training.source(found))} · {text(found.started)}"
    parts = [MARKER, f"# {text(said.headline)}", text(said.detail), what]
    for title, body in _sections(found):
        parts += [f"## {title}", body]
    return "\n\n".join(part for part in parts if part) + "\n"


def _sections(found: Training) -> Iterator[tuple[str, str]]:
    head, rows, left_out = training.history(found)
    more = f"\n\n{counted(left_out, 'row')} between them left out." if left_out else ""
    yield "How it went", (_table(head, rows) or "No loss was recorded.") + more
    tried = _table(training.TRIED, training.tried(found))
    about = training.ABOUT_TRIED if tried else training.NOTHING_TRIED
    yield "What auto tried", f"{about}\n\n{tried}".strip()
    if found.rates is not None:
        about = training.about_rates(found.rates)
        yield "Learning rate", f"{about}\n\n{_table(training.RATES, training.rates(found.rates))}"
    if found.kept:
        yield "Seeds", _table(training.seeds_head(found), training.seeds(found))
    notes = training.notes(found)
    if notes:
        yield "Notes", "\n".join(f"- {text(note)}" for note in notes)
    yield "Machine", "\n".join(f"- {text(line)}" for line in training.machine(found.machine))


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    return table(map(text, head), (map(text, row) for row in rows))
