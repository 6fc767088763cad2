"""The items of one batch, drawn by several threads at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, final

from torch.utils.data import Subset

from outpace.serve.batches import same_bits
from outpace.serve.executors import fetch_threads

Many = Callable[[list[Any]], Any]


@final
class ByThreads:
    """Threads that draw a part of a batch each.

    What draws several samples at once (`__getitems__`) may make of them what it will, as one batch: the first
    is drawn whole as well as in parts, and all are drawn whole where that is not the same.
    """

    def __init__(self, dataset: Any, threads: int) -> None:
        self.dataset, self.count = dataset, threads
        self.divides: bool | None = None
        """whether what draws several at once gives the same by parts; None: not known"""
        self.begin()

    def begin(self) -> None:
        """Begin the threads, also in a fork, which has none of its parent's."""
        self.pool = fetch_threads(self.count)

    def items(self, indices: list[Any]) -> Any:
        """What a collate function is given."""
        many = _many(self.dataset)
        if many is None:
            return self._by_parts(lambda part: [self.dataset[i] for i in part], indices)
        if self.divides and (items := self._by_parts(many, indices)) is not None:
            return items
        whole = many(indices)
        if self.divides is None and len(indices) > 1:
            self.divides = self._are_parts(many, indices, whole)
        elif self.divides:
            self.divides = False
        return whole

    def _are_parts(self, many: Many, indices: list[Any], whole: Any) -> bool:
        try:
            return same_bits(whole, self._by_parts(many, indices))
        except Exception:  # of a part, where the whole can be drawn
            return False

    def _by_parts(self, many: Many, indices: list[Any]) -> list[Any] | None:
        """The items, a part by each thread; None where one does not give a list of its own."""
        size = max(1, -(-len(indices) // self.count))
        parts = [indices[i : i + size] for i in range(0, len(indices), size)]
        found = list(self.pool.map(many, parts))
        for part, items in zip(parts, found, strict=True):
            if not isinstance(items, list) or len(items) != len(part):
                return None
        return [item for items in found for item in items]

    def close(self) -> None:
        """End the threads."""
        self.pool.shutdown(wait=False, cancel_futures=True)


def _many(dataset: Any) -> Many | None:
    """By what a data set draws several samples at once; None where it draws them one by one."""
    inner = dataset
    while type(inner) is Subset:
        inner = inner.dataset
    drawn = callable(getattr(inner, "__getitems__", None))
    return dataset.__getitems__ if drawn else None
