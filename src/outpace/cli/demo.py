"""``outpace demo``."""

from __future__ import annotations

import click

TEXT = """\
Outpace works on your own script, unchanged. Try it in this order:

  outpace diagnose train.py        what is it bound by? (a minute; changes nothing)
  outpace tune train.py            what makes it faster, measured and proven
  outpace run train.py             train under the recipe that tune wrote
  outpace report .outpace/latest -o report.html

The repository has four scripts to play with in examples/, and `make demo` does all of this on one
of them, with real photographs.
"""


@click.command("demo")
def command() -> int:
    """What to type first."""
    click.echo(TEXT, nl=False)
    return 0
