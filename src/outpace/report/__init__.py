"""Reports of a session, or of a training: on a terminal, as HTML, Markdown or JSON, and against another."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

from outpace.errors import UsageError
from outpace.records.files import to_json, write_text
from outpace.records.session import Session
from outpace.records.training import Training
from outpace.report.trace import is_trace

__all__ = ["check_place", "write_report", "written"]

_HEAD = 4096
_JSON_KEYS = (
    {"schema", "outcome", "target", "evidence", "ledger"},
    {"schema", "outcome", "stopped", "machine", "history"},
)
"""of a session, and of a training"""


def write_report(session: Session | Training, path: Path | str, *, force: bool = False) -> None:
    """Write a session as HTML, Markdown or JSON, whole or not at all; the suffix says which.

    Raises UsageError for another suffix and, without ``force``, where a file is there that is not
    a report of ours.
    """
    path = Path(path)
    text = _renderer(session, path)
    check_place(path, force=force)
    written(path, text())


def check_place(path: Path, *, force: bool, trace: bool = False) -> None:
    """Raises UsageError for a folder and, without ``force``, for a file of other origin."""
    if path.is_dir():
        raise UsageError(f"{path} is a folder", "name a file in it")
    if path.exists() and not force and not (is_trace if trace else is_report)(path):
        raise UsageError(
            f"{path} is there already and is not a {'trace' if trace else 'report'} of outpace",
            "choose another name, or replace it with --force",
        )


def not_written(path: Path, error: OSError, hint: str | None = None) -> UsageError:
    """What is told where a file that was asked for cannot be."""
    return UsageError(f"{path} cannot be written: {error.strerror or error}", hint)


def written(path: Path, text: str) -> None:
    """Write a file that was asked for, whole or not at all. Raises UsageError."""
    try:
        write_text(path, text)
    except OSError as error:
        raise not_written(path, error) from error


def _renderer(session: Session | Training, path: Path) -> Callable[[], str]:
    """What gives the text that a suffix asks for."""
    suffix = path.suffix.lower()
    if suffix in (".html", ".htm"):
        return partial(_html, session)
    if suffix in (".md", ".markdown"):
        return partial(_markdown, session)
    if suffix == ".json":
        return lambda: to_json(session) + "\n"
    raise UsageError(
        f"{path} does not say what to write: its suffix is {suffix or 'missing'!r}",
        "name a file that ends in .html, .md or .json",
    )


def _html(session: Session | Training) -> str:
    if isinstance(session, Training):
        from outpace.report.training_html import render_training

        return render_training(session)
    from outpace.report.html import render_html

    return render_html(session)


def _markdown(session: Session | Training) -> str:
    if isinstance(session, Training):
        from outpace.report.training_markdown import render_training

        return render_training(session)
    from outpace.report.markdown import render_markdown

    return render_markdown(session)


def is_report(path: Path) -> bool:
    """Whether a file is a report that outpace wrote."""
    from outpace.report.html import GENERATOR
    from outpace.report.markdown import MARKER

    try:
        text = path.read_text("utf-8")
        if text.lstrip().startswith("{"):
            keys = set(json.loads(text))
            return any(keys >= known for known in _JSON_KEYS)
    except (OSError, ValueError):
        return False
    return GENERATOR in text[:_HEAD] or MARKER in text[:_HEAD]
