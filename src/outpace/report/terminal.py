"""A session on a terminal: the verdict first, then what it rests on, then what to do next.

Made for 80 columns and few colours; `NO_COLOR` and narrow or ASCII-only terminals are rich's and
handled here by plain characters. It goes to the console it is given, which the command line opens
on stderr.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from outpace.records.counted import counted
from outpace.records.finding import Finding
from outpace.records.gain import Gain
from outpace.records.session import Session
from outpace.records.trial import Trial
from outpace.report import bars, sentences, words
from outpace.report.axis import Axis, ratio_axis

WIDEST = 100
_TONES = {"good": "green", "warn": "yellow", "bad": "red", "plain": "cyan"}
_ASCII = str.maketrans("█▉▊▋▌▍▎▏━─│●◇◈×–—…µ✓✗·┃▁▂▃▄▅▆▇", "########=-|*o@x--.u+x.|_.:-=+*") | {
    ord("∞"): "inf",
    ord("≠"): "!=",
    ord("→"): "->",
}


def print_session(session: Session, console: Console, folder: Path | str | None = None) -> None:
    """Print what a session found. ``folder``: where it is kept, named in what to do next."""
    width = min(console.width, WIDEST)
    print_parts(_parts(session, console, width, folder), console, width)


def print_parts(parts: Iterable[RenderableType], console: Console, width: int) -> None:
    """Print the parts of a report, one below the other."""
    with console.capture() as capture:
        for part in parts:
            console.print(part, width=width, soft_wrap=isinstance(part, Text))
        console.print()
    text = "\n".join(line.rstrip() for line in capture.get().split("\n"))
    console.file.write(spelled(text, ascii_only=console.options.ascii_only))
    console.file.flush()


def spelled(text: str, *, ascii_only: bool) -> str:
    """Text as it is, or in plain characters alone."""
    return text.translate(_ASCII).encode("ascii", "replace").decode("ascii") if ascii_only else text


def _parts(
    session: Session, console: Console, width: int, folder: Path | str | None
) -> Iterator[RenderableType]:
    axis = ratio_axis(_ratios(session))
    yield from verdict(sentences.verdict(session), console, width)
    if session.ledger:
        yield from _ledger(session, width)
    if session.findings:
        yield title("What would be gained", "without the cost: │ no gain, ● gain, ─ 95 % interval")
        for finding in session.findings:
            yield from _finding(finding, session.target.cwd, axis, width)
    if session.trials:
        yield title("Remedies tried", "◇ predicted, ● measured, ─ 95 % interval")
        yield from _trials(session.trials, axis, width)
    yield from _remarks(session)
    yield from commands(sentences.next_steps(session, folder))


def _ratios(session: Session) -> Iterator[float | None]:
    """The ratios that the bars must hold; ends of wide intervals may be cut."""
    for finding in session.findings:
        yield from (finding.gain.speedup, finding.gain.low, finding.gain.high)
    for trial in session.trials:
        yield trial.predicted.speedup
        if trial.measured:
            yield from (trial.measured.speedup, trial.measured.low, trial.measured.high)


def verdict(said: sentences.Verdict, console: Console, width: int) -> Iterator[RenderableType]:
    """The first lines, which a reader must take away."""
    tone = _TONES[said.tone]
    yield Text()
    for text, style in ((said.headline, "bold"), (said.detail, "default")):
        for line in Text(text, style).wrap(console, width - 4) if text else ():
            line.rstrip()
            yield Text.assemble("  ", ("┃ ", tone), line, no_wrap=True)


def title(name: str, note: str = "") -> Text:
    """Of a part of the report."""
    return Text.assemble("\n  ", (name, "bold"), ("   " + note if note else "", "dim"))


def grid(widths: Sequence[int], rows: Iterable[Sequence[str | Text]]) -> Table:
    """Rows of cells; a column without width is left out."""
    table = Table.grid(padding=(0, 1))
    table.add_column(width=1)
    for width in filter(None, widths):
        table.add_column(width=width, no_wrap=True, overflow="ellipsis")
    for row in rows:
        table.add_row("", *(cell for cell, width in zip(row, widths, strict=True) if width))
    return table


def _ledger(session: Session, width: int) -> Iterator[RenderableType]:
    yield title("Where the time went", sentences.ledger_span(session))
    rows = sorted(session.ledger, key=lambda row: -row.share if words.finite(row.share) else 0.0)
    shown = [row for row in rows if not row.share < 0.005] or rows[:1]
    top = max((row.share for row in shown if words.finite(row.share)), default=1.0) or 1.0
    small = rows[len(shown) :]
    rest, spent = sum(row.share for row in small), sum(row.seconds for row in small)
    took = max(9, *(len(words.seconds(each)) for each in (spent, *(row.seconds for row in shown))))
    left = width - took - 22  # by a name, a share and a time
    long = max(8, min(22, width - 58)) if left >= 14 else 0
    place = left - bool(long) - long - 1 if left >= 5 else 0
    cells: list[tuple[str | Text, ...]] = []
    for row in shown:
        where = words.shorten(words.place(row.where, session.target.cwd), place)
        drawn = Text(bars.bar(row.share / top, long), "cyan")
        figures = words.share(row.share).rjust(7), words.seconds(row.seconds).rjust(took)
        cells.append((words.plain(row.name), drawn, *figures, Text(where, "dim")))
    if small:
        figures = words.share(rest).rjust(7), words.seconds(spent).rjust(took)
        cells.append((Text(counted(len(small), "other"), "dim"), "", *figures, ""))
    yield grid((max(1, min(11, width - took - 11)), long, 7, took, place), cells)


def _gain_row(
    mark: Text, name: Text, axis: Axis, width: int, gain: Gain | None, guess: Gain | None
) -> Table:
    long = min(36, width - 48) if width >= 58 else 0  # the bar gives way to the figures
    label_width = 22 if not long else width - long - 26
    cells = words.times(gain.speedup).rjust(6) if gain else words.MISSING.rjust(6)
    inner = f" {words.interval(gain)}" if gain else ""
    label = Text.assemble((cells, bars.style(gain) if gain else "dim"), (inner, "dim"))
    track = bars.track(axis, gain, long, guess) if long else ""
    return grid((1, max(1, min(20, width - 27)), long, label_width), [(mark, name, track, label)])


def _finding(finding: Finding, cwd: str, axis: Axis, width: int) -> Iterator[RenderableType]:
    name = " · ".join(filter(None, (finding.bound, finding.cause)))
    yield _gain_row(Text(" "), Text(words.plain(name), "bold"), axis, width, finding.gain, None)
    where = words.place(finding.where, cwd)
    reason = words.plain(finding.reason)
    yield _indented(Text.assemble(reason, (f"  {where}" if where else "", "dim")), width)
    if finding.remedies:
        text = Text("try ", "dim")
        for index, advice in enumerate(finding.remedies):
            comma = "" if index == 0 else ", "
            text.append(
                f"{comma}{words.plain(advice.name)} {words.times(advice.predicted.speedup)}"
                f"{' by hand' if advice.by_hand else ''}"
            )
        yield _indented(text.append(" (predicted)", "dim"), width)


def _indented(text: Text, width: int) -> Padding:
    return Padding(text, (0, max(0, width - WIDEST), 0, 4))


def _trials(trials: tuple[Trial, ...], axis: Axis, width: int) -> Iterator[RenderableType]:
    for trial in trials:
        mark = Text("✓", "green") if trial.accepted else Text("✗", "dim")
        name = Text(words.plain(trial.remedy), "bold" if trial.accepted else "default")
        yield _gain_row(mark, name, axis, width, trial.measured, trial.predicted)
        if not trial.accepted and trial.reason:
            yield _indented(Text(words.plain(trial.reason), "dim"), width)


def _remarks(session: Session) -> Iterator[RenderableType]:
    remarks: list[tuple[str, str, str]] = []
    if session.command == "tune" and session.trials:
        remarks.append(("Quality", sentences.proof_sentence(session.proof), "default"))
    for found in session.learning:
        tone = "red" if found.severity == "critical" else "yellow"
        text = f"{words.plain(found.rule)}: {sentences.learning_sentence(found)}"
        remarks.append(("Learning", text, tone))
    if session.overhead is not None:
        remarks.append(("Overhead", sentences.overhead_sentence(session.overhead), "default"))
    remarks += [("Note", words.plain(note), "default") for note in session.notes]
    yield from named(remarks)


def named(remarks: Sequence[tuple[str, str, str]]) -> Iterator[RenderableType]:
    """Sentences of (name, text, tone)."""
    table = Table.grid(padding=(0, 1))
    for column in (1, 8, None):
        table.add_column(width=column, overflow="fold")
    for name, said, tone in remarks:
        table.add_row("", Text(name, f"bold {tone}"), Text(said))
    if remarks:
        yield Text()
        yield table


def commands(steps: Sequence[sentences.Next]) -> Iterator[Text]:
    """What to type next."""
    if steps:
        yield title("Next")
    for step in steps:
        yield Text(f"  # {step.why}", "dim")
        yield Text(f"  {step.command}", "cyan")
