"""Places in shared memory that batches are written to again and again.

With memory of its own each batch costs a fault for each of its pages, in the worker that writes it and
in the process that takes it away again: on some machines more than to make it. A place is given out
with a request, and comes back when the last tensor of the batch that lies there is gone; while a
training keeps its batches, the next go by memory of their own.
"""

from __future__ import annotations

import ctypes
import weakref
from collections import deque

import torch

SPARE = 2
"""places besides those on their way: a loop holds a batch while it asks for the next"""
SLACK = 1.25
"""times the size of the first batch that a place has"""
PAGE = 4096
Place = ctypes.Array[ctypes.c_char]


class Slots:
    """So many places for batches of about ``batch_bytes``."""

    def __init__(self, count: int, batch_bytes: int) -> None:
        size = place_bytes(batch_bytes)
        shared = torch.UntypedStorage._new_shared(count * size)  # type: ignore[no-untyped-call]
        self.memory = torch.empty(0, dtype=torch.uint8).set_(shared).view(count, size)
        """uint8: places x bytes of each; what workers need to know"""
        self._arrays = self.memory.numpy()
        self.free = deque(range(count))
        self._coming: deque[int | None] = deque()

    def take(self) -> int | None:
        """The number of a place for the next request; None where all are in use."""
        try:
            number = self.free.popleft()
        except IndexError:
            number = None
        self._coming.append(number)
        return number

    def arrived(self) -> Place | None:
        """The place of the earliest request that has not arrived yet: it comes back when nothing
        looks at it any more.
        """
        number = self._coming.popleft()
        if number is None:
            return None
        # A view of an array holds on to the memory, not to the array: to this it does.
        place = (ctypes.c_char * self.memory.shape[1]).from_buffer(self._arrays[number])
        weakref.finalize(place, self.free.append, number).atexit = False
        return place

    def none_coming(self) -> None:
        """What has not arrived never will."""
        self.free.extend(number for number in self._coming if number is not None)
        self._coming.clear()


def place_bytes(batch_bytes: int) -> int:
    """Of a place for such batches."""
    return -(-int(SLACK * batch_bytes) // PAGE) * PAGE
