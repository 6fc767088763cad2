"""Stdout for the one document of ``--json``: what else is printed in our process goes to stderr.

And the streams that whoever started us has closed.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import sys
from collections.abc import Iterator
from typing import TextIO

import click


def open_closed() -> None:
    """Have stdin, stdout and stderr go nowhere where they are closed: else a file gets their number."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free
            stream = open(number, "w" if number else "r", closefd=False)  # noqa: SIM115
            setattr(sys, name, stream)


def in_utf8(stream: TextIO) -> bool:
    """Whether a stream has all characters."""
    return (stream.encoding or "utf-8").lower().startswith("utf")


def echo_json(document: object) -> None:
    """A document in UTF-8, or in ASCII where stdout has another encoding."""
    from outpace.records.files import to_json

    text = to_json(document)
    if not in_utf8(sys.stdout):
        text = json.dumps(json.loads(text), indent=2)
    click.echo(text)


@contextlib.contextmanager
def kept_clear(yes: bool) -> Iterator[None]:
    """While code of the user's runs in our process, ``yes`` sends all that it prints to stderr.

    Also what C libraries and child processes print.
    """
    if not yes:
        yield
        return
    before = sys.stdout
    before.flush()
    ours = os.dup(1)
    os.dup2(2, 1)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        # What was written to these, and to C's own, may wait to be written still.
        with contextlib.suppress(OSError, ValueError):
            before.flush()
        if sys.__stdout__ is not None:
            with contextlib.suppress(OSError, ValueError):
                sys.__stdout__.flush()
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).fflush(None)
        os.dup2(ours, 1)
        os.close(ours)
