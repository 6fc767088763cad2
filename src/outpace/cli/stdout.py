"""Stdout for the one document of ``--json``: what else is printed in our process goes to stderr."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def kept_clear(yes: bool) -> Iterator[None]:
    """While code of the user's runs in our process, ``yes`` sends all that it prints to stderr.

    Also what C libraries and child processes print.
    """
    if not yes:
        yield
        return
    sys.stdout.flush()
    ours = os.dup(1)
    os.dup2(2, 1)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(ours, 1)
        os.close(ours)
