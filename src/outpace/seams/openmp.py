"""OpenMP threads that sleep while they wait, switched on and off in a running process.

A thread of GNU's OpenMP that waits for others spins some 300,000 rounds before it sleeps. Where
more threads are in its teams than the process may use cores it spins 100 rounds only (manual of
libgomp, GOMP_SPINCOUNT). So a parked thread that once ran a team of its own, and holds it, makes
all others wait asleep; once it ends they spin again. No sum is split otherwise: the bits stay.
"""

from __future__ import annotations

import _thread
import math
import os
import threading

import torch

PARALLEL = 1 << 18
"""elements of an operation that torch surely shares among threads"""


class ParkedTeams:
    """Sleeping teams beside those of ``threads`` threads: as many as it takes, until ``end``.

    Nobody waits for the parked threads, neither at their start nor at their end: torch may be
    just being imported, and they need the lock that the import holds. `threading` does not know them: a
    script may wait for the end of all threads that it knows.
    """

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self.over = threading.Event()
        for _ in range(teams_needed(threads, cores())):
            _thread.start_new_thread(self._hold, ())

    def _hold(self) -> None:
        torch.empty(PARALLEL).fill_(0.0)
        self.over.wait()

    def end(self) -> None:
        """Let the teams go."""
        self.over.set()


def cores() -> int:
    """What libgomp takes for the cores; 0 where there is none of it."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0


def teams_needed(threads: int, cores: int) -> int:
    """Teams to park, of ``threads`` each, until all threads are more than the cores.

    The first team counts ``threads``, each more one less: its first thread is no OpenMP thread.
    """
    if threads < 2 or threads > cores:
        return 0
    return math.ceil((cores + 1 - threads) / (threads - 1))
