"""Work that lets go of the interpreter, on all cores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

from outpace.measure.machine import cores_of_rank

FEWEST = 32
"""pieces of work for a thread, below which to start one takes longer than it gives"""


def in_threads(work: Callable[[Sequence[Any]], None], pieces: Sequence[Any]) -> None:
    """``work`` on runs of ``pieces``, one a core. Raises what it raises, the first run's first."""
    count = min(cores_of_rank(), len(pieces) // FEWEST)
    if count < 2:
        work(pieces)
        return
    bounds = [len(pieces) * each // count for each in range(count + 1)]
    runs = [pieces[begin:end] for begin, end in pairwise(bounds)]
    with ThreadPoolExecutor(count, "outpace-copy") as pool:
        for _ in pool.map(work, runs):
            pass
