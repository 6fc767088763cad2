"""How much each worker process may have made that nobody asked for yet.

Batches may come to be larger than those that were looked at. Only the worker that makes them knows at
once, so it waits by itself before it makes more than its part of what may be on its way; it goes on when
the training asks for what it has.
"""

from __future__ import annotations

import os
import time
from collections import deque
from multiprocessing import parent_process
from typing import Any, final

import torch
from torch.utils.data import get_worker_info

from outpace.serve.places import shared

PAUSE_S = 1e-3
RECENT = 8
"""batches of which the largest tells how large the next may be"""
ROUND, LIFTED, FIRST = range(3)
"""where in shared memory there are the number of the iteration, whether nobody waits, and how many batches
the first worker was asked for
"""


@final
class Room:
    """For ``workers`` whose batches may have so many bytes together; each may have one however large."""

    def __init__(self, workers: int, most_bytes: float) -> None:
        self.workers, self.each = workers, most_bytes / workers
        self._shared = shared(8 * (FIRST + workers))
        self._told = self._shared.view(torch.int64).numpy()
        self._process = os.getpid()
        self._round = self._gone = 0
        self._ahead: deque[int] = deque()
        """bytes of what a worker has made in this round and nobody asked for"""
        self._recent: deque[int] = deque(maxlen=RECENT)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_told"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ |= state
        self._told = self._shared.view(torch.int64).numpy()

    def begin(self) -> None:
        """Another iteration: nothing of it is asked for. To be called while workers rest."""
        self._told[FIRST:] = 0
        self._told[ROUND] += 1
        self._told[LIFTED] = 0

    def ask(self, number: int) -> None:
        """For an iteration's batch: workers make them in turn."""
        self._told[FIRST + number % self.workers] += 1

    def lift(self) -> None:
        """Have nobody wait, as what workers are at is not wanted any more."""
        if os.getpid() == self._process:  # to a fork's parent it may be
            self._told[LIFTED] = 1

    def wait(self) -> None:
        """In a worker: until there is room for another batch."""
        if self._round != int(self._told[ROUND]):
            self._round, self._gone = int(self._told[ROUND]), 0
            self._ahead.clear()
        while not self._told[LIFTED]:
            asked = int(self._told[FIRST + self._worker()])
            while self._ahead and self._gone < asked:
                self._ahead.popleft()
                self._gone += 1
            if not self._ahead or sum(self._ahead) + max(self._recent) <= self.each:
                return
            training = parent_process()
            if training is not None and not training.is_alive():
                return
            time.sleep(PAUSE_S)

    def made(self, size: int) -> None:
        """In a worker: a batch of so many bytes."""
        self._ahead.append(size)
        self._recent.append(size)

    def _worker(self) -> int:
        worker = get_worker_info()
        return worker.id if worker is not None else 0
