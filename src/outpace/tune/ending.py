"""Ending a process whose results are thrown away, once all that is wanted of it was measured."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import sys
from typing import NoReturn


def end_process() -> NoReturn:
    """End it here and now, with the processes that it started; what it printed is kept."""
    with contextlib.suppress(Exception):
        sys.stdout.flush()
        sys.stderr.flush()
    for child in multiprocessing.active_children():
        child.kill()
    os._exit(0)
