"""Two sessions side by side: what changed from the first to the second.

The ratio of step times compares two runs that did not take turns, so it has no interval: other work
on the machine counts as a change. The note below the table says so.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from outpace.errors import UsageError
from outpace.records.counted import counted
from outpace.records.finding import Finding
from outpace.records.ledger import NAMES
from outpace.records.session import Session
from outpace.records.training import Training
from outpace.report import markdown, sentences, words

NOTE = "The two sessions did not take turns: other work on the machine counts as a change."


class Line(NamedTuple):
    """One compared quantity: of the first session, of the second, and the change in words."""

    name: str
    first: str
    second: str
    change: str = ""


class Compared(NamedTuple):
    """The main change in one sentence, lines by what they are about, and what else there is to say."""

    headline: str
    groups: Sequence[tuple[str, Sequence[Line]]]
    remarks: Sequence[str]

    def told(self) -> dict[str, Any]:
        """The same as plain values."""
        lines = {group: [line._asdict() for line in some] for group, some in self.groups if some}
        return {"headline": self.headline, "changes": lines, "remarks": list(self.remarks)}


def compare(a: Session | Training, b: Session | Training) -> RenderableType:
    """Both sessions as a table for a terminal."""
    found = compared(a, b)
    table = Table(box=None, padding=(0, 2, 0, 0))
    for title, side in (("", "left"), ("first", "right"), ("second", "right"), ("change", "left")):
        table.add_column(title, justify=side, overflow="fold")  # type: ignore[arg-type]
    for group, lines in found.groups:
        if lines:
            table.add_row(Text(f"\n{group}" if table.row_count else group, "bold"))
        for line in lines:
            table.add_row(*(Text(cell) for cell in line))
    remarks = [Text(remark, "dim") for remark in found.remarks]
    return Group(Text(found.headline, "bold"), table, Text(), *remarks)


def compare_markdown(a: Session | Training, b: Session | Training) -> str:
    """Both sessions as Markdown."""
    found = compared(a, b)
    parts = [markdown.MARKER, f"# {markdown.text(found.headline)}"]
    for group, lines in found.groups:
        rows = (tuple(markdown.text(cell) for cell in line) for line in lines)
        parts += [markdown.table((group, "first", "second", "change"), rows)]
    parts += [markdown.text(remark) for remark in found.remarks]
    return "\n\n".join(part for part in parts if part) + "\n"


def compared(a: Session | Training, b: Session | Training) -> Compared:
    """What changed. Raises UsageError where one is a training by `outpace.Trainer`, and the other none."""
    if isinstance(a, Training) and isinstance(b, Training):
        from outpace.report.training_compare import compared_trainings

        return compared_trainings(a, b)
    if isinstance(a, Training) or isinstance(b, Training):
        which = "first" if isinstance(a, Training) else "second"
        raise UsageError(
            f"the {which} session is a training of outpace train, and the other one is not",
            "compare two trainings, or two sessions of diagnose, tune or plan",
        )
    return Compared(headline(a, b), list(_groups(a, b)), list(_remarks(a, b)))


def headline(a: Session, b: Session) -> str:
    """The main change in one sentence; of samples where a step has another number of them."""
    if _other_batch(a, b):
        one, other = a.steps.samples_per_s, b.steps.samples_per_s
        ratio = ratio_of(other, one)
        if ratio is None:
            return "The speeds cannot be compared."
        before, after = words.number(one), words.number(other)
        return f"{after} samples a second instead of {before}: {words.times(ratio)} as fast."
    ratio = ratio_of(a.steps.median_s, b.steps.median_s)
    if ratio is None:
        return "The step times cannot be compared."
    before, after = words.seconds(a.steps.median_s), words.seconds(b.steps.median_s)
    return f"A step takes {after} instead of {before}: {words.times(ratio)} as fast."


def _other_batch(a: Session, b: Session) -> bool:
    """Whether a step is known to have another number of samples than before."""
    one, other = a.evidence.samples_a_step, b.evidence.samples_a_step
    return one != other and min(one, other) > 0


def ratio_of(before: float | None, after: float | None) -> float | None:
    """How much less the second is; None where that is not known."""
    if before is None or after is None or not (words.finite(before) and words.finite(after)):
        return None
    return before / after if before > 0 and after > 0 else None


def _groups(a: Session, b: Session) -> Iterator[tuple[str, list[Line]]]:
    yield "step", list(_steps(a, b))
    yield "bound", [Line("bound by", _bound(a), _bound(b), "" if _bound(a) == _bound(b) else "≠")]
    yield "share of time", list(_ledger(a, b))
    yield "gain without", list(_findings(a, b))
    yield "memory", list(_memory(a, b))


def _steps(a: Session, b: Session) -> Iterator[Line]:
    pairs = (
        ("wall time", _of_steps(a, a.steps.median_s), _of_steps(b, b.steps.median_s)),
        ("CPU time", _of_steps(a, a.steps.cpu_s), _of_steps(b, b.steps.cpu_s)),
    )
    for name, one, other in pairs:
        change = "" if _other_batch(a, b) else as_fast(ratio_of(one, other))
        yield Line(name, words.seconds(one), words.seconds(other), change)
    one, other = (_of_steps(each, each.steps.samples_per_s) for each in (a, b))
    change = as_fast(ratio_of(other, one))
    yield Line("samples a second", words.number(one), words.number(other), change)
    if a.speedup or b.speedup:
        yield Line("speed-up by its recipe", words.gain(a.speedup), words.gain(b.speedup))


def _of_steps(session: Session, value: float) -> float | None:
    """A figure of a session's steps; None where it has none."""
    return value if session.steps.count else None


def as_fast(ratio: float | None) -> str:
    """``2.00× as fast``; empty where it is not known."""
    return f"{words.times(ratio)} as fast" if ratio else ""


def _bound(session: Session) -> str:
    return words.plain(" · ".join(filter(None, (session.bound, session.cause))))


def _ledger(a: Session, b: Session) -> Iterator[Line]:
    one, other = _shares(a), _shares(b)
    known = [name for name in NAMES if name in one or name in other]
    for name in known + [name for name in {**one, **other} if name not in NAMES]:
        first, second = (each.get(name, 0.0) if each else math.nan for each in (one, other))
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
            first, second = _of_memory(a, one), _of_memory(b, other)
            yield Line(name, words.size(first), words.size(second), change)


def _of_memory(session: Session, value: int) -> int | None:
    """A part of a session's memory; None where it was not measured."""
    return value if session.memory.peak_bytes > 0 else None


def _remarks(a: Session, b: Session) -> Iterator[str]:
    for name, session in (("first", a), ("second", b)):
        said = sentences.verdict(session).headline
        what = words.plain(" ".join(session.target.words))
        yield f"{name}: {session.command} {what}, {words.plain(session.started)}: {said}"
    yield NOTE
    if _other_batch(a, b):
        yield (
            f"A step has {counted(b.evidence.samples_a_step, 'sample')} instead of "
            f"{a.evidence.samples_a_step:,}: times of steps are not compared."
        )
    if a.machine.fingerprint != b.machine.fingerprint:
        yield "They ran on different machines."
    if a.target.words != b.target.words:
        yield "They ran different targets."
