"""Places in shared memory that worker processes write batches to again and again.

With memory of its own each batch costs a fault for each of its pages, in the worker that writes it and
in the process that takes it away again: on some machines more than to make it. Each worker has places
of its own and takes one that is free; it is free again when the last tensor of the batch that lies
there is gone, here and in processes that were forked meanwhile. While a training keeps its batches, the
next go by memory of their own.
"""

from __future__ import annotations

import ctypes
import os
import weakref
from typing import Any

import torch
from torch.utils.data import get_worker_info

from outpace.serve.heirs import Heirs

SPARE = 2
"""places of a worker besides those on their way: a loop holds a batch while it asks for the next"""
SLACK = 1.25
"""times the size of the first batch that a place has"""
PAGE = 4096
Place = ctypes.Array[ctypes.c_char]


class Places:
    """``each`` for every worker, for batches of about ``batch_bytes``."""

    def __init__(self, workers: int, each: int, batch_bytes: int) -> None:
        self.workers = workers
        self.size = -(-int(SLACK * batch_bytes) // PAGE) * PAGE
        """bytes of a place"""
        self.memory = shared(workers * each * self.size).view(-1, self.size)
        self.used = shared(workers * each)
        """1 from when a worker has begun to write there, 0 from when nothing looks at it"""
        self._lent: set[int] = set()
        self._heirs = Heirs(self._lent)
        self._process = os.getpid()

    def take(self) -> int | None:
        """In a worker: the number of a place, which is used from now on; None where all are."""
        worker = get_worker_info()
        own = range(worker.id if worker is not None else 0, len(self.used), self.workers)
        number = next((number for number in own if not self.used[number]), None)
        if number is not None:
            self.used[number] = 1
        return number

    def lend(self, number: int) -> Place:
        """Where the batch arrives: the place, which is free again when nothing looks at it."""
        self._take_back()
        self._lent.add(number)
        # A view of an array holds on to the memory, not to the array: to this it does.
        memory: Any = self.memory[number].numpy()
        place = (ctypes.c_char * self.size).from_buffer(memory)
        weakref.finalize(place, self._free, number).atexit = False
        return place

    def _free(self, number: int) -> None:
        if os.getpid() != self._process:
            return  # in a fork: its parent takes back what it lent
        self._take_back()
        held = self._heirs.hold(number)  # before it is not lent any more: see `given_back`
        self._lent.discard(number)
        if not held:
            self.used[number] = 0

    def _take_back(self) -> None:
        """What forked processes have looked at, now that they have ended."""
        for number in self._heirs.given_back():
            self.used[number] = 0

    def none_coming(self) -> None:
        """What has not arrived never will: to be called while workers rest."""
        self._take_back()
        for number in range(len(self.used)):
            if number not in self._lent and not self._heirs.hold(number):
                self.used[number] = 0


def shared(size: int) -> torch.Tensor:
    """So many bytes of shared memory, all zero."""
    storage: Any = torch.UntypedStorage
    return torch.empty(0, dtype=torch.uint8).set_(storage._new_shared(size))
