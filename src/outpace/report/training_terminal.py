"""A training on a terminal: the verdict, how it went, what was tried, notes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from outpace.records.counted import counted
from outpace.records.training import Training
from outpace.report import bars, training, words
from outpace.report.terminal import WIDEST, commands, named, print_parts, title, verdict

HUGE = 1e100
"""beyond which a value has no height among others"""


def print_training(found: Training, console: Console, folder: Path | str | None = None) -> None:
    """Print what a training came to. ``folder``: where it is kept, named in what to do next."""
    width = min(console.width, WIDEST)
    print_parts(_parts(found, console, width, folder), console, width)


def _parts(
    found: Training, console: Console, width: int, folder: Path | str | None
) -> Iterator[RenderableType]:
    yield from verdict(training.verdict(found), console, width)
    curves = training.curves(found)
    if curves:
        yield title("How it went", f"{counted(len(found.history), 'row')}, from first to last")
        yield _curves(curves, width)
    if found.tried:
        yield title("What auto tried", "on held-out batches, after short trainings")
        yield _tried(found)
    if found.kept:
        yield title("Seeds", "those that were trained to their end, best first")
        yield _table(training.seeds_head(found), training.seeds(found))
    yield from named([("Note", note, "default") for note in training.notes(found)])
    lines = training.machine(found.machine)
    yield from named(
        [("Machine" if i == 0 else "", line, "default") for i, line in enumerate(lines)]
    )
    yield from commands(training.next_steps(folder))


def _curves(curves: dict[str, list[tuple[float, float]]], width: int) -> Table:
    long = max(8, min(bars.CURVE, width - 40))
    rows = []
    for name, points in curves.items():
        values = [value for _, value in points]
        seen = [value if abs(value) < HUGE else float("nan") for value in values]
        ends = f"{words.number(values[0], 4)} → {words.number(values[-1], 4)}"
        rows.append((name, Text(bars.curve(seen, long), "cyan"), Text(ends)))
    return _table((), rows)


def _tried(found: Training) -> Table:
    rows = []
    for each in found.tried:
        ahead = Text("·" if each.verdict == "ahead" else "✗", "dim")
        mark = Text("✓", "green") if each.better else ahead
        figures = " for ".join(training.costs(each))
        rows.append((mark, words.plain(each.what), figures, training.outcome(each)))
    return _table((), rows)


def _table(head: Sequence[str], rows: Sequence[Sequence[str | Text]]) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    cells: list[Sequence[str | Text]] = [[Text(name, "dim") for name in head]] if head else []
    cells += rows
    for row in cells:
        table.add_row("", *(Text(cell) if isinstance(cell, str) else cell for cell in row))
    return table
