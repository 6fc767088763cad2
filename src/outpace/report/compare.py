"""Two sessions side by side: what changed from the first to the second.

The ratio of step times compares two runs that did not take turns, so it has no interval: other work
on the machine counts as a change. The note below the table says so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from outpace.records.finding import Finding
from outpace.records.ledger import NAMES
from outpace.records.session import Session
from outpace.report import markdown, sentences, words

NOTE = "The two sessions did not take turns: other work on the machine counts as a change."


class Line(NamedTuple):
    """One compared quantity: of the first session, of the second, and the change in words."""

    name: str
    first: str
    second: str
    change: str = ""


def compare(a: Session, b: Session) -> RenderableType:
    """Both sessions as a table for a terminal."""
    table = Table(box=None, padding=(0, 2, 0, 0))
    for title, side in (("", "left"), ("first", "right"), ("second", "right"), ("change", "left")):
        table.add_column(title, justify=side, overflow="fold")  # type: ignore[arg-type]
    for group, lines in _groups(a, b):
        if lines:
            table.add_row(Text(f"\n{group}" if table.row_count else group, "bold"))
        for line in lines:
            table.add_row(*(Text(cell) for cell in line))
    remarks = [Text(remark, "dim") for remark in _remarks(a, b)]
    return Group(Text(headline(a, b), "bold"), table, Text(), *remarks)


def compare_markdown(a: Session, b: Session) -> str:
    """Both sessions as Markdown."""
    parts = [markdown.MARKER, f"# {markdown.text(headline(a, b))}"]
    for group, lines in _groups(a, b):
        rows = (tuple(markdown.text(cell) for cell in line) for line in lines)
        parts += [markdown.table((group, "first", "second", "change"), rows)]
    parts += [markdown.text(remark) for remark in _remarks(a, b)]
    return "\n\n".join(part for part in parts if part) + "\n"


def headline(a: Session, b: Session) -> str:
    """The main change in one sentence; of samples where a step has another number of them."""
    if _other_batch(a, b):
        one, other = a.steps.samples_per_s, b.steps.samples_per_s
        ratio = _ratio(other, one)
        if ratio is None:
            return "The speeds cannot be compared."
        before, after = words.number(one), words.number(other)
        return f"{after} samples a second instead of {before}: {words.times(ratio)} as fast."
    ratio = _ratio(a.steps.median_s, b.steps.median_s)
    if ratio is None:
        return "The step times cannot be compared."
    before, after = words.seconds(a.steps.median_s), words.seconds(b.steps.median_s)
    return f"A step takes {after} instead of {before}: {words.times(ratio)} as fast."


def _other_batch(a: Session, b: Session) -> bool:
    """Whether a step is known to have another number of samples than before."""
    one, other = _samples(a), _samples(b)
    return one != other and min(one, other) > 0


def _samples(session: Session) -> int:
    """Samples a step; 0 where they are not known."""
    return session.evidence.steps.batch_size * session.evidence.steps.micro_steps


def _ratio(before: float, after: float) -> float | None:
    if not (words.finite(before) and words.finite(after) and before > 0 and after > 0):
        return None
    return before / after


def _groups(a: Session, b: Session) -> Iterator[tuple[str, list[Line]]]:
    yield "step", list(_steps(a, b))
    yield "bound", [Line("bound by", _bound(a), _bound(b), "" if _bound(a) == _bound(b) else "≠")]
    yield "share of time", list(_ledger(a, b))
    yield "gain without", list(_findings(a, b))
    yield "memory", list(_memory(a, b))


def _steps(a: Session, b: Session) -> Iterator[Line]:
    pairs = (
        ("wall time", a.steps.median_s, b.steps.median_s),
        ("CPU time", a.steps.cpu_s, b.steps.cpu_s),
    )
    for name, one, other in pairs:
        change = "" if _other_batch(a, b) else _as_fast(_ratio(one, other))
        yield Line(name, words.seconds(one), words.seconds(other), change)
    one, other = a.steps.samples_per_s, b.steps.samples_per_s
    change = _as_fast(_ratio(other, one))
    yield Line("samples a second", words.number(one), words.number(other), change)
    if a.speedup or b.speedup:
        yield Line("speed-up by its recipe", words.gain(a.speedup), words.gain(b.speedup))


def _as_fast(ratio: float | None) -> str:
    return f"{words.times(ratio)} as fast" if ratio else ""


def _bound(session: Session) -> str:
    return words.plain(" · ".join(filter(None, (session.bound, session.cause))))


def _ledger(a: Session, b: Session) -> Iterator[Line]:
    one, other = _shares(a), _shares(b)
    known = [name for name in NAMES if name in one or name in other]
    for name in known + [name for name in {**one, **other} if name not in NAMES]:
        first, second = one.get(name, 0.0), other.get(name, 0.0)
        points = 100 * (second - first)
        change = f"{points:+.1f} points" if words.finite(points) and abs(points) >= 0.05 else ""
        yield Line(words.plain(name), words.share(first), words.share(second), change)


def _shares(session: Session) -> dict[str, float]:
    """Of each kind of time; several places may have a row each of one kind."""
    shares: dict[str, float] = {}
    for row in session.ledger:
        shares[row.name] = shares.get(row.name, 0.0) + row.share
    return shares


def _findings(a: Session, b: Session) -> Iterator[Line]:
    counts = (Counter(_named(finding) for finding in session.findings) for session in (a, b))
    several = {name for count in counts for name in count if count[name] > 1}
    one, other = _apart(a, several), _apart(b, several)
    for name in {**one, **other}:
        first, second = one.get(name), other.get(name)
        change = "gone" if second is None else "new" if first is None else ""
        yield Line(name, _gain(first), _gain(second), change)


def _named(finding: Finding) -> str:
    return words.plain(" · ".join(filter(None, (finding.bound, finding.cause))))


def _apart(session: Session, several: set[str]) -> dict[str, Finding]:
    """Findings by name, and by place where ``several`` have that name: lines move as a script changes."""
    found: dict[str, Finding] = {}
    for finding in session.findings:
        name = _named(finding)
        if name in several and finding.where:
            name += f" at {words.place(finding.where, session.target.cwd)}"
        found.setdefault(name, finding)
    return found


def _gain(finding: Finding | None) -> str:
    return words.gain(finding.gain if finding else None)


def _memory(a: Session, b: Session) -> Iterator[Line]:
    kinds = ("parameters", "gradients", "optimizer", "activations", "temporaries", "other")
    pairs = [
        ("peak", a.memory.peak_bytes, b.memory.peak_bytes),
        *((k, getattr(a.memory.by_kind, k), getattr(b.memory.by_kind, k)) for k in kinds),
    ]
    for name, one, other in pairs:
        if one > 0 or other > 0:
            change = words.change(other / one) if one > 0 and other > 0 and one != other else ""
            yield Line(name, words.size(one), words.size(other), change)


def _remarks(a: Session, b: Session) -> Iterator[str]:
    for name, session in (("first", a), ("second", b)):
        said = sentences.verdict(session).headline
        what = words.plain(" ".join(session.target.words))
        yield f"{name}: {session.command} {what}, {words.plain(session.started)}: {said}"
    yield NOTE
    if _other_batch(a, b):
        yield (
            f"A step has {words.count(_samples(b), 'sample')} instead of {_samples(a):,}: "
            "times of steps are not compared."
        )
    if a.machine.fingerprint != b.machine.fingerprint:
        yield "They ran on different machines."
    if a.target.words != b.target.words:
        yield "They ran different targets."
