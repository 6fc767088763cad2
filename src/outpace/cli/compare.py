"""``outpace compare``."""

from __future__ import annotations

from pathlib import Path

import click

from outpace.cli.options import option
from outpace.cli.report import session_file


@click.command("compare", epilog="Example: outpace compare .outpace/before .outpace/latest")
@click.argument("before", type=click.Path(path_type=Path))
@click.argument("after", type=click.Path(path_type=Path))
@option("--markdown", is_flag=True, help="As Markdown.")
def command(before: Path, after: Path, markdown: bool) -> int:
    """What changed between two sessions, or between two trainings."""
    from rich.console import Console

    from outpace.records.session import read_session
    from outpace.report.compare import compare, compare_markdown
    from outpace.report.terminal import spelled

    one, other = (read_session(session_file(path)) for path in (before, after))
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
