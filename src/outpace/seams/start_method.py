"""How worker processes start here. Nothing imports torch; what a script chooses later is not seen."""

from __future__ import annotations

import multiprocessing


def start_method() -> str:
    """How a process starts where nobody says how: as this process has chosen, else python's default."""
    # To ask for the method without this would choose it, which a script may do once.
    chosen = multiprocessing.get_start_method(allow_none=True)
    return chosen or multiprocessing.get_all_start_methods()[0]


def forks() -> bool:
    """Whether it starts as a fork, which has all that this process has."""
    return start_method() == "fork"
