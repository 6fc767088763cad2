"""Small batches of a store made several at once: one gather of many rows is cheaper than many of a few."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, final

import numpy as np
import torch

from outpace.serve.arrays import Arrays
from outpace.serve.making import Arrival, BatchMaker, Made, Request, bytes_of
from outpace.serve.tables import Table

MOST = 16
"""batches"""
MOST_BYTES = 4 << 20
"""of them together: what is made is still in the processor's cache when the step reads it"""


@final
class Several:
    """In the thread that draws, some batches ahead.

    Their arrays are views of what was gathered at once: who keeps one keeps the memory of all. What has parts
    that are no arrays (a column of text), or cannot be read, is made batch by batch.
    """

    workers = 0

    def __init__(self, maker: BatchMaker, arrival: Arrival, most_bytes: int) -> None:
        self.maker, self.arrival = maker, arrival
        self.most_bytes = min(MOST_BYTES, most_bytes)

    def made(self, requests: Iterable[Request]) -> Iterator[Made]:
        """Each request's batch, when it is drawn; the first is made alone, and tells how many to make."""
        coming = iter(requests)
        for first in islice(coming, 1):
            alone = self.maker(first)
            count = 1 if alone.skipped else self._count(alone.batch)
            yield self.arrival(alone)
            while some := list(islice(coming, count)):
                yield from (self.arrival(made) for made in self._made(some))

    def _count(self, batch: Any) -> int:
        """Batches like this one that are made at once."""
        try:
            _cut(batch, slice(0))
        except TypeError:
            return 1
        return max(1, min(MOST, self.most_bytes // max(1, bytes_of(batch))))

    def _made(self, some: list[Request]) -> Iterator[Made]:
        if len(some) > 1:
            ends = np.cumsum([len(request.indices) for request in some])
            try:
                whole = self.maker.source.batch(np.concatenate([one.indices for one in some]))
                parts = [
                    _cut(whole, slice(end - len(one.indices), end))
                    for one, end in zip(some, ends.tolist(), strict=True)
                ]
            except Exception:  # told of with the batch that it belongs to
                return map(self.maker, some)
            return map(Made, parts)
        return map(self.maker, some)

    def alive(self) -> bool:
        """There are no workers."""
        return True

    def resize(self, workers: int, depth: int) -> None:
        """Nothing to change."""

    def close(self) -> None:
        """Nothing to end."""


def cuts(maker: BatchMaker) -> bool:
    """Whether several batches of a source may be made at once: of our stores, as they are."""
    return maker.whole and isinstance(maker.source, Arrays | Table)


def _cut(batch: Any, rows: slice) -> Any:
    """Some rows of a batch, as the maker gives them. Raises TypeError for what is no array."""
    if isinstance(batch, dict):
        return {key: _cut(part, rows) for key, part in batch.items()}
    if isinstance(batch, tuple):
        return tuple(_cut(part, rows) for part in batch)
    if isinstance(batch, np.ndarray):
        # By numpy, so that what is saved of a tensor are its own rows.
        part = batch[rows]
        return torch.from_numpy(part) if part.dtype.kind in "biufc" else part
    if isinstance(batch, torch.Tensor):
        return batch[rows].clone()  # autograd counts changes to a tensor and its views together
    raise TypeError(f"{type(batch).__name__}: no array")
