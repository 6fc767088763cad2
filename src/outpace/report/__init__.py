"""Reports of a session: on a terminal, as HTML, Markdown or JSON, and against another session."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from outpace.errors import UsageError
from outpace.records.files import to_json, write_text
from outpace.records.session import Session
from outpace.report.trace import is_trace

__all__ = ["check_place", "write_report", "written"]

_HEAD = 4096
_JSON_KEYS = {"schema", "outcome", "target", "evidence", "ledger"}


def write_report(session: Session, path: Path, *, force: bool = False) -> None:
    """Write a session as HTML, Markdown or JSON, whole or not at all; the suffix says which.

    Raises UsageError for another suffix and, without ``force``, where a file is there that is not
    a report of ours.
    """
    render = _renderer(path)
    check_place(path, force=force)
    written(path, render(session))


def check_place(path: Path, *, force: bool, trace: bool = False) -> None:
    """Raises UsageError for a folder and, without ``force``, for a file of other origin."""
    if path.is_dir():
        raise UsageError(f"{path} is a folder", "name a file in it")
    if path.exists() and not force and not (is_trace if trace else is_report)(path):
        raise UsageError(
            f"{path} is there already and is not a {'trace' if trace else 'report'} of outpace",
            "choose another name, or replace it with --force",
        )


def written(path: Path, text: str) -> None:
    """Write a file that was asked for, whole or not at all. Raises UsageError."""
    try:
        write_text(path, text)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror or error}") from error


def _renderer(path: Path) -> Callable[[Session], str]:
    suffix = path.suffix.lower()
    if suffix in (".html", ".htm"):
        from outpace.report.html import render_html

        return render_html
    if suffix in (".md", ".markdown"):
        from outpace.report.markdown import render_markdown

        return render_markdown
    if suffix == ".json":
        return lambda session: to_json(session) + "\n"
    raise UsageError(
        f"{path} does not say what to write: its suffix is {suffix or 'missing'!r}",
        "name a file that ends in .html, .md or .json",
    )


def is_report(path: Path) -> bool:
    """Whether a file is a report that outpace wrote."""
    from outpace.report.html import GENERATOR
    from outpace.report.markdown import MARKER

    try:
        text = path.read_text("utf-8")
        if text.lstrip().startswith("{"):
            return set(json.loads(text)) >= _JSON_KEYS
    except (OSError, ValueError):
        return False
    return GENERATOR in text[:_HEAD] or MARKER in text[:_HEAD]
