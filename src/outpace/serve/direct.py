"""What is asked of worker processes, written to them at once.

A queue of multiprocessing leaves the writing to a thread, for which the one that trains stands back a
moment. Where workers keep all cores busy, that moment is the scheduler's: 4 to 5 ms before the training
goes on, though its batch is there.
"""

from __future__ import annotations

from multiprocessing.reduction import ForkingPickler
from typing import Any

MOST = 4096
"""bytes that are written at once: what a pipe has no room for would be waited for"""
PARTS = ("_sem", "_wlock", "_writer")
"""of a queue, as Python has them; another kind of queue is left as it is"""


def send_directly(queue: Any) -> None:
    """Have what is put into the queue from now on be written by whoever puts it, if it is small."""
    if any(getattr(queue, part, None) is None for part in PARTS):
        return
    by_thread = queue.put

    def put(thing: Any, block: bool = True, timeout: float | None = None) -> None:
        data = ForkingPickler.dumps(thing)
        if len(data) > MOST:
            by_thread(thing, block, timeout)
            return
        queue._sem.acquire(block, timeout)
        with queue._wlock:
            queue._writer.send_bytes(data)

    queue.put = put
