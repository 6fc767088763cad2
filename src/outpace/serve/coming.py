"""Batches of an epoch, and after them those of the next.

The last batches of an epoch leave workers with nothing to do, and the first of the next would be waited
for: the order of samples is known beforehand, so they are begun before anybody asks. What a script may
have changed in between must hold for them too: see `Coming.continues`, and `crosses`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Any, NamedTuple, final

import numpy as np
from numpy.typing import NDArray
from torch import is_inference_mode_enabled as inferring
from torch.utils.data import default_collate

from outpace.serve.executors import Executor, Threads
from outpace.serve.making import BatchMaker, Made, Request
from outpace.serve.order import Order, Repeated
from outpace.serve.processes import Processes


class Terms(NamedTuple):
    """By which an epoch is cut into batches."""

    order: Order | Repeated
    batch_size: int
    rank: int
    world: int
    drop_last: bool
    drop_single: bool

    @property
    def together(self) -> int:
        """Samples of a batch, on all ranks."""
        return self.batch_size * self.world

    def batches(self, samples: int) -> int:
        """Of so many samples, on each rank."""
        whole, rest = divmod(samples, self.together)
        dropped = self.drop_last or (self.drop_single and rest <= self.world)
        return whole + (rest > 0 and not dropped)

    def request(self, epoch: int, consumed: int) -> Request:
        """For this rank's part of the batch that follows on so many samples."""
        share = self.order.share(epoch, consumed, self.batch_size, self.rank, self.world)
        return Request(epoch, *share)


class Begun(NamedTuple):
    """Samples of a batch that was asked for, and whether in inference mode, of which its tensors are then."""

    indices: NDArray[np.int64]
    inferring: bool


@final
class Coming:
    """An executor's batches, from where an epoch is; of ``epochs`` in all, None: as many as are wanted."""

    def __init__(
        self,
        executor: Executor,
        terms: Terms,
        epoch: int,
        consumed: int,
        maker: BatchMaker,
        epochs: float | None,
    ) -> None:
        self.executor, self.terms, self.maker = executor, terms, maker
        self._state = None if _is_over(epoch + 1, epochs) else maker.state()
        """of what samples are made by, where another epoch may follow; None where that cannot be told"""
        if self._state is None:
            epochs = epoch + 1
        self.asked: deque[Begun] = deque()
        """what was not drawn yet"""
        self.epoch, self.consumed = epoch, consumed
        """where what comes next begins"""
        self.over = False
        """no epoch follows"""
        self._epochs = epochs
        # It must not hold the loader, which would not end with its last user.
        self._made = executor.made(_asking(terms, epoch, consumed, epochs, self.asked))

    def continues(self, executor: Executor, terms: Terms, epoch: int, consumed: int) -> bool:
        """Whether what comes next is what would be made now."""
        asked = (executor, terms, epoch, consumed)
        own = (self.executor, self.terms, self.epoch, self.consumed)
        same = not self.over and asked == own and self._state == self.maker.state()
        alike = all(begun.inferring == inferring() for begun in self.asked)
        return same and alike and executor.alive()

    def of_epoch(self) -> Iterator[Made]:
        """Those that are left of the epoch."""
        left = self.terms.batches(self.terms.order.size - self.consumed)
        yield from islice(self._made, left)
        self.epoch, self.consumed = self.epoch + 1, 0
        self.over = _is_over(self.epoch, self._epochs)

    def close(self) -> None:
        """Nobody wants what was begun."""
        self.over = True
        if hasattr(self._made, "close"):
            self._made.close()


def _asking(
    terms: Terms, epoch: int, consumed: int, epochs: float | None, asked: deque[Begun]
) -> Iterator[Request]:
    while True:
        for i in range(terms.batches(terms.order.size - consumed)):
            request = terms.request(epoch, consumed + i * terms.together)
            asked.append(Begun(request.indices, inferring()))
            yield request
        epoch, consumed = epoch + 1, 0
        if _is_over(epoch, epochs) or not terms.batches(terms.order.size):
            return


def _is_over(epoch: int, epochs: float | None) -> bool:
    return epochs is not None and epoch >= epochs


def crosses(executor: Executor, maker: BatchMaker, after: Any) -> bool:
    """Whether batches of the next epoch may be begun in this one.

    Worker processes have all as it was when they were forked, and whether that is still so can be asked.
    Threads see what a script's own functions look at, whatever it is: only ours look at nothing else.
    """
    if isinstance(executor, Processes):
        return True
    functions = (maker.source, maker.prepare, maker.transform, maker.collate, after)
    return isinstance(executor, Threads) and all(map(_is_ours, functions))


def _is_ours(thing: Any) -> bool:
    if thing is None or thing is default_collate:
        return True
    name = getattr(thing, "__module__", None)
    return isinstance(name, str) and name.split(".")[0] == __name__.split(".")[0]
