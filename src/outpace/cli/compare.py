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
    """What changed between two sessions."""
    from outpace.records.files import read_json
    from outpace.records.session import Session
    from outpace.report.compare import compare, compare_markdown

    one, other = (read_json(session_file(p), Session) for p in (before, after))
    if markdown:
        click.echo(compare_markdown(one, other))
    else:
        from rich.console import Console

        Console().print(compare(one, other))
    return 0
