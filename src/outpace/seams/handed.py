"""Queues by which a thread of the script's hands batches to the training.

Such a thread makes batches ahead, and the step computes slower beside it: they share the interpreter and
the cores. What that takes shows where the training is given the same batch again, once the queue is full
and the thread rests. What is in the queue stays there meanwhile, so that none is lost and none comes twice.
"""

from __future__ import annotations

import copy
import functools
import queue
import sys
import time
import weakref
from collections.abc import Iterable, Mapping, MutableMapping
from itertools import islice
from typing import Any

from outpace.seams.host import Host
from outpace.seams.in_place_of import put_back
from outpace.seams.setup import AS_IS, Setup
from outpace.seams.where import is_user_file

EACH_STEP = 0.8
"""batches a step from which on the queue feeds the steps: one that is drawn now and then does not"""
FEWEST = 5
"""steps after which that can be told"""
LOOKED_AT, DEEP = 8, 3
"""items of a container, the first, and how deep in one another"""
LOOK_S, REST_S, MOST_S = 0.005, 0.5, 3.0
"""how often it is looked whether the queue is full, how long it has to stay as it is to be taken for that,
and how long to wait for it at the most"""


class HandedSeam:
    """Stands at ``queue.Queue.get``, on the thread that trains."""

    name = "handed"

    def __init__(self, host: Host) -> None:
        self.host = host
        self.setup = AS_IS
        self.original: Any = None
        self.ours: Any = None
        self.queue: Any = lambda: None
        """weakly, the one that gave a batch last"""
        self.item: Any = None
        """that batch"""
        self.drawn = 0
        self.since = 0
        """steps before the first of them"""
        self.feeding = False
        """the steps learn from what a queue gives, which no more than so much is put into"""
        self.filled = True
        self.usual = 0
        """batches that were in the queue before the same one came again"""

    def install(self) -> None:
        """Put the seam in."""
        if self.original is not None:
            return
        self.original = original = queue.Queue.get
        seam, host = self, self.host

        @functools.wraps(original)
        def get(own: Any, *args: Any, **kwargs: Any) -> Any:
            theirs = is_user_file(sys._getframe(1).f_code.co_filename)
            if not theirs or not host.on_main_thread() or host.mode == "validation":
                return original(own, *args, **kwargs)
            again = seam.feeding and seam.setup.free_input
            if again and own is seam.queue() and seam.item is not None:
                host.guard("handed", seam.fill, own)
                seam.drawn += 1
                with own.mutex:
                    own.unfinished_tasks += 1  # the script may say of each that it is done
                return apart(seam.item)
            item = original(own, *args, **kwargs)
            host.guard("handed", seam.note, own, item)
            if again:
                seam.filled = False
                host.guard("handed", seam.fill, own)
            return item

        queue.Queue.get = self.ours = get  # type: ignore[method-assign, assignment]

    def remove(self) -> None:
        """Take it out."""
        self.item, self.drawn = None, 0
        if self.original is not None and put_back(queue.Queue, "get", self.ours, self.original):
            self.original = None

    def reconcile(self, setup: Setup) -> None:
        """Give the same batch again where input is to be free."""
        if setup.free_input and not self.setup.free_input:
            self.filled, self.usual = False, self.ready()
        self.setup = setup

    def note(self, own: Any, item: Any) -> None:
        """A queue has given something."""
        if not holds_data(item):
            return  # it says that an epoch is over
        if not self.drawn:
            self.since = self.host.steps
        self.drawn += 1
        steps = self.host.steps - self.since
        if steps >= FEWEST:
            self.feeding = own.maxsize > 0 and self.drawn >= EACH_STEP * steps
        self.queue, self.item = weakref.ref(own), apart(item)

    def fill(self, own: Any) -> None:
        """Wait until the thread that makes batches rests; the step in which that is, is not timed."""
        if self.filled:
            return
        begun = grown = time.monotonic()
        size = own.qsize()
        while not own.full() and time.monotonic() - begun < MOST_S:
            time.sleep(LOOK_S)
            if own.qsize() != size:
                size, grown = own.qsize(), time.monotonic()
            elif time.monotonic() - grown > REST_S:
                break  # it has made all of an epoch
        self.filled = True

    def surplus(self) -> int:
        """Batches that were put into the queue while the training drew none."""
        return 0 if self.setup.free_input else max(0, self.ready() - self.usual)

    def ready(self) -> int:
        """Batches in the queue."""
        own = self.queue()
        return 0 if own is None else own.qsize()


def apart(item: Any) -> Any:
    """A batch of which the script may take things out."""
    return copy.copy(item) if isinstance(item, list | MutableMapping) else item


def holds_data(item: Any, deep: int = DEEP) -> bool:
    """Whether there are tensors or arrays in it."""
    if hasattr(item, "__array__") or not deep:
        return hasattr(item, "__array__")
    if isinstance(item, tuple | list):
        within: Iterable[Any] = item
    else:
        within = (item if isinstance(item, Mapping) else getattr(item, "__dict__", {})).values()
    return any(holds_data(each, deep - 1) for each in islice(within, LOOKED_AT))
