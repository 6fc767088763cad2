"""A thread that makes batches ahead of the training, in order.

It ends with its epoch; where a loop leaves an epoch early, after the batch that it is making, and
before another thread draws from the same data set.
"""

from __future__ import annotations

import atexit
import contextlib
import queue
import threading
import weakref
from collections.abc import Iterator
from functools import partial
from typing import Any

from outpace.serve.thread_state import AsHere


class Work:
    """A thread that makes batches ahead, in order, until they end or nobody draws any more.

    It makes them as the thread would that begins it, under ``torch.no_grad()`` say.
    """

    def __init__(
        self, batches: Iterator[Any], most: int, go: threading.Event, closed: threading.Event
    ) -> None:
        self.batches = batches
        self.ready: queue.Queue[tuple[str, Any]] = queue.Queue(maxsize=max(1, most))
        self.go = go
        self.closed = closed
        self.left = threading.Event()
        run = partial(AsHere(), self.run)
        self.thread = threading.Thread(target=run, name="outpace-ahead", daemon=True)
        at_work.add(self)
        self.thread.start()

    def run(self) -> None:
        """Make batches; what is raised on the way is passed on to who draws, who may draw on."""
        try:
            while self.put(*self.made()):
                while not self.go.wait(timeout=0.5):
                    if self.over():
                        return
        finally:
            self.batches = iter(())  # They hold the feed, which holds this.

    def made(self) -> tuple[str, Any]:
        """The next batch, or what came instead of it."""
        try:
            return "batch", next(self.batches)
        except StopIteration:
            return "end", None
        except BaseException as error:
            return "error", error

    def over(self) -> bool:
        """Whether nobody will draw any more."""
        return self.closed.is_set() or self.left.is_set()

    def put(self, kind: str, value: Any) -> bool:
        """Hand over; whether to go on."""
        while not self.over():
            with contextlib.suppress(queue.Full):
                self.ready.put((kind, value), timeout=0.2)
                return kind != "end" and not self.over()
        return False

    def leave(self) -> None:
        """Nobody draws any more: the thread ends after the batch that it is making."""
        self.left.set()
        with contextlib.suppress(queue.Empty):
            while True:
                self.ready.get_nowait()


at_work: weakref.WeakSet[Work] = weakref.WeakSet()


@atexit.register
def end_all() -> None:
    """Let threads end before the interpreter does: torch does not bear to be cut off."""
    for work in list(at_work):
        work.leave()
    for work in list(at_work):
        work.thread.join(timeout=5.0)


class Ahead:
    """An iterator over what a thread has made ahead; what it raised is raised here."""

    def __init__(self, work: Work) -> None:
        self.work = work
        self.over = False

    def __iter__(self) -> Ahead:
        return self

    def __next__(self) -> Any:
        if self.over:
            raise StopIteration
        kind, value = self.work.ready.get()
        if kind == "batch":
            return value
        if kind == "error":
            raise value
        self.over = True
        raise StopIteration

    def __del__(self) -> None:
        self.work.leave()
