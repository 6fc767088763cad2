"""What a measuring command prints at its end, and its exit code."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from outpace.cli.options import mark_latest
from outpace.records.files import to_json
from outpace.records.session import Session


def show(session: Session, folder: Path, *, as_json: bool) -> int:
    """Print a session; the target's own exit code where it failed."""
    mark_latest(folder)
    if as_json:
        click.echo(to_json(session))
    else:
        from rich.console import Console

        from outpace.report.terminal import print_session

        print_session(session, Console(stderr=True), folder=str(folder))
    sys.stdout.flush()
    return session.exit_code or 0
