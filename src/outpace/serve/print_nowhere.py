"""A child process that is thrown away prints nothing."""

from __future__ import annotations

import os
import sys


def print_nowhere() -> None:
    """From here on what this process prints, and the libraries in it, goes nowhere."""
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)
    sys.stdout = sys.stderr = os.fdopen(1, "w", closefd=False)
