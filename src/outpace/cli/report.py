"""``outpace report``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from outpace.cli.options import option
from outpace.cli.stdout import echo_json

if TYPE_CHECKING:
    from outpace.records.session import Session
    from outpace.records.training import Training


def session_file(given: Path) -> Path:
    """The session.json of a session folder, or the file itself."""
    return given / "session.json" if given.is_dir() else given


@click.command(
    "report",
    epilog="""\b
Examples:
  outpace report
  outpace report .outpace/latest --json
  outpace report .outpace/latest -o report.html""",
)
@click.argument("session", default=".outpace/latest", type=click.Path(path_type=Path))
@option("--output", "-o", type=click.Path(path_type=Path), help="report.html, .md or .json.")
@option("--json", "as_json", is_flag=True, help="The session as JSON on stdout.")
@option("--force", is_flag=True, help="Replace a file that is not a report of ours.")
def command(session: Path, output: Path | None, as_json: bool, force: bool) -> int:
    """Show a session again, or write it as one self-contained file (default: the newest)."""
    from outpace.records.session import read_session

    record = read_session(session_file(session))
    if output is not None:
        from outpace.report import write_report

        write_report(record, output, force=force)
        click.echo(f"wrote {output}", err=True)
    if as_json:  # last: what is on stdout by then stands beside no error
        echo_json(record)
    elif output is None:
        show(record)
    return 0


def show(record: Session | Training) -> None:
    """On the terminal."""
    from rich.console import Console

    from outpace.records.training import Training

    if isinstance(record, Training):
        from outpace.report.training_terminal import print_training

        print_training(record, Console())
    else:
        from outpace.report.terminal import print_session

        print_session(record, Console())
