"""A session as Markdown, for a pull request or an issue."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from outpace.records.counted import counted
from outpace.records.recipe_file import recipe_text
from outpace.records.session import Session
from outpace.records.trial import Trial
from outpace.report import labels, sentences, words

MARKER = "<!-- made by outpace -->"
_BAR = re.compile(r"(?<!\\)\|")
_SPECIAL = re.compile(r"([\\`*\[\]|<>&~]|(?<![^\W_])_|_(?![^\W_]))")
"""underscores but for those within a word, which mark nothing"""


def render_markdown(session: Session) -> str:
    """The report of a session as Markdown."""
    said = sentences.verdict(session)
    parts = [MARKER, f"# {text(said.headline)}", text(said.detail), _what(session)]
    for title, body in _sections(session):
        parts += [f"## {title}", body]
    return "\n\n".join(part for part in parts if part) + "\n"


def _sections(session: Session) -> Iterator[tuple[str, str]]:
    spent = _ledger(session)
    span = text(sentences.ledger_span(session))
    yield "Where the time went", f"{span}\n\n{spent}" if spent else "No time was measured."
    yield "Arms", _arms(session) or "No arm was measured."
    yield "What would be gained", _findings(session)
    yield "Remedies", _trials(session) or "No remedy was tried."
    yield "Memory", _memory(session) or "Memory was not measured."
    yield "Proof", text(sentences.proof_sentence(session.proof))
    record = session.recipe_record
    recipe = recipe_text(record, sentences.recipe_file(session)) if record else ""
    yield "Recipe", fenced(recipe, "toml") if record else "No recipe was made."
    diff = session.diff.strip("\n")
    without = sentences.not_in_diff(session)
    shown = fenced(diff, "diff") if diff else "No change to the script is proposed."
    yield "Diff", f"{shown}\n\n{text(without)}" if without else shown
    yield "Machine", _machine(session)
    steps = sentences.next_steps(session)
    if steps:
        lines = "\n".join(f"# {step.why}\n{step.command}" for step in steps)
        yield "Next", fenced(lines, "sh")


def text(said: str) -> str:
    """Text from outside, freed of what Markdown and HTML would read as marks."""
    return _SPECIAL.sub(r"\\\1", words.plain(said))


def code(said: str) -> str:
    """Text from outside as code within a line."""
    said = words.plain(said)
    if not said.strip():
        return ""
    longest = max((len(run) for run in re.findall("`+", said)), default=0)
    marks, room = "`" * (longest + 1), " " if longest else ""
    return f"{marks}{room}{said}{room}{marks}"


def fenced(said: str, language: str) -> str:
    """Text from outside as a block of code."""
    said = words.block(said)
    longest = max((len(run) for run in re.findall("`+", said)), default=0)
    marks = "`" * max(3, longest + 1)
    return f"{marks}{language}\n{said}\n{marks}"


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table of cells that are Markdown already; empty where there is no row.

    A bar ends a cell within code too, where outside of tables a backslash before it would be read as itself.
    """
    cells = ([_BAR.sub(r"\\|", cell) for cell in row] for row in rows)
    head, lines = list(head), ["| " + " | ".join(row) + " |" for row in cells]
    rule = "| " + " | ".join("---" for _ in head) + " |"
    return "\n".join(["| " + " | ".join(head) + " |", rule, *lines]) if lines else ""


def _what(session: Session) -> str:
    steps = session.steps
    facts = [code(words.outpace(session.command, session.target))]
    if steps.count:
        facts += [
            f"{counted(steps.count, 'step')} of {words.seconds(steps.median_s)}",
            f"{words.seconds(steps.cpu_s)} of CPU time a step",
            f"{words.number(steps.samples_per_s)} samples a second",
        ]
    return " · ".join(facts)


def _ledger(session: Session) -> str:
    rows = (
        (
            text(row.name),
            words.share(row.share),
            words.seconds(row.seconds),
            code(words.place(row.where, session.target.cwd)),
        )
        for row in session.ledger
    )
    return table(("time", "share", "seconds", "where"), rows)


def _arms(session: Session) -> str:
    rows = []
    for arm in session.evidence.arms:
        gains = (words.gain(arm.gain), words.gain(arm.cpu_gain))
        cells = (f"failed: {text(arm.failed)}", "") if arm.failed else gains
        name = text(labels.arm(arm.name))
        if arm.base != "as_is":
            name += f" (against {text(labels.arm(arm.base))})"
        rows.append((name, words.seconds(arm.seconds), *cells))
    return table(("arm", "a step", "speed-up", "of CPU time"), rows)


def _findings(session: Session) -> str:
    lines = []
    if not session.findings:
        none = "None." if session.evidence.experimented else "None: no experiment was made."
        lines = [text(" ".join((none, sentences.ceiling_sentence(session))).strip())]
        lines += [""] * bool(session.learning)
    for finding in session.findings:
        name = ", ".join(filter(None, (finding.bound, finding.cause)))
        where = code(words.place(finding.where, session.target.cwd))
        lines.append(
            f"- **{text(name)}** {words.gain(finding.gain)} without it, {finding.gain.how}. "
            f"{text(finding.reason)} {where}".rstrip()
        )
        lines += [
            f"  - {code(advice.name)}{' by hand' if advice.by_hand else ''} "
            f"{words.gain(advice.predicted)} predicted, keeps "
            f"{labels.KEEPS.get(advice.keeps, advice.keeps)}. {text(advice.reason)}".rstrip()
            for advice in finding.remedies
        ]
    for found in session.learning:
        lines.append(
            f"- **{text(found.rule)}** ({found.severity}) "
            f"{text(sentences.learning_sentence(found))}"
        )
    return "\n".join(lines)


def _trials(session: Session) -> str:
    head = ("", "remedy", "settings", "keeps", "predicted", "measured", "why", "took")
    return table(head, (_trial(trial) for trial in session.trials))


def _trial(trial: Trial) -> tuple[str, ...]:
    settings = ", ".join(f"{key} = {value}" for key, value in trial.settings.items())
    return (
        "✓" if trial.accepted else "✗",
        code(trial.remedy),
        code(settings),
        labels.KEEPS.get(trial.keeps, trial.keeps),
        words.gain(trial.predicted),
        words.gain(trial.measured),
        text(trial.reason),
        words.seconds(trial.seconds),
    )


def _memory(session: Session) -> str:
    kinds = session.memory.by_kind
    names = ("parameters", "gradients", "optimizer", "activations", "temporaries", "other")
    if session.memory.peak_bytes <= 0:
        return ""
    rows = [(name, words.size(getattr(kinds, name))) for name in names]
    return table(("memory", "bytes"), [*rows, ("peak", words.size(session.memory.peak_bytes))])


def _machine(session: Session) -> str:
    machine = session.machine
    cores, memory = counted(machine.cores, "core"), words.size(machine.memory_bytes)
    hardware = f"{text(machine.cpu)}, {cores}, {memory}"
    lines = [
        f"- {hardware}; {text(machine.system)}",
        *(f"- {text(a.name)}, {words.size(a.memory_bytes)}" for a in machine.accelerators),
        f"- Python {text(machine.python)}, torch {text(machine.torch)}",
        f"- {sentences.overhead_sentence(session.overhead)}",
        *(f"- {text(note)}" for note in session.notes),
    ]
    return "\n".join(lines)
