"""``outpace compare``."""

from __future__ import annotations

from pathlib import Path

import click

from outpace.cli.options import option
from outpace.cli.report import session_file
from outpace.cli.stdout import echo_json


@click.command(
    "compare",
    epilog="""\b
Examples:
  outpace compare .outpace/before .outpace/latest
  outpace compare --json .outpace/before .outpace/latest""",
)
@click.argument("before", type=click.Path(path_type=Path))
@click.argument("after", type=click.Path(path_type=Path))
@option("--markdown", is_flag=True, help="As Markdown.")
@option(
    "--json", "as_json", is_flag=True, help="One JSON document on stdout, the figures in words."
)
def command(before: Path, after: Path, markdown: bool, as_json: bool) -> int:
    """What changed between two sessions, or between two trainings."""
    from rich.console import Console

    from outpace.records.session import read_session
    from outpace.report.compare import compare, compare_markdown, compared
    from outpace.report.terminal import spelled

    one, other = (read_session(session_file(path)) for path in (before, after))
    if as_json:
        echo_json({"schema": 1, "command": "compare", **compared(one, other).told()})
        return 0
    console = Console()
    if markdown:
        text = compare_markdown(one, other) + "\n"
    else:
        with console.capture() as capture:
            console.print(compare(one, other))
        text = capture.get()
    console.file.write(spelled(text, ascii_only=console.options.ascii_only))
    console.file.flush()
    return 0
