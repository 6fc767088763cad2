"""What a shuffled order draws at its end, and when it does.

A `RandomSampler` that was given a generator draws one more order from it once it is asked for more than it
has. The DataLoader's own iterator asks so for what follows on the last whole batch, and one with workers as
many batches sooner as these have on their way. Who makes batches ahead would ask at other times: a script
that counts its batches, or leaves an epoch early, would have another order in the next one.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any, final

import torch
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, Sampler


def without_end(loader: DataLoader[Any]) -> Any:
    """What gives the indices of a loader's batches, and draws nothing at their end."""
    sampler, batches = _shuffling(loader), loader.batch_sampler
    if sampler is None:
        return loader._index_sampler
    if isinstance(batches, BatchSampler):
        return BatchSampler(Order(sampler), batches.batch_size, batches.drop_last)
    return Order(sampler)


def until_end(batches: Iterator[Any], loader: DataLoader[Any]) -> Iterator[Any]:
    """The batches of an epoch, whose first indices were asked of `without_end`: what its order draws at its
    end is drawn when the loader's own iterator would.
    """
    sampler = _shuffling(loader)
    if sampler is None:
        return batches
    size = getattr(loader.batch_sampler, "batch_size", 1)
    on_their_way = loader.num_workers * (loader.prefetch_factor or 0)
    return UntilEnd(batches, sampler, len(sampler) // size + 1 - on_their_way)


def _shuffling(loader: DataLoader[Any]) -> RandomSampler | None:
    """The sampler, where it draws at its end. One that gives fewer than there are, or others on the way, does
    not, or has drawn before.
    """
    batches: Any = loader.batch_sampler
    if batches is not None and type(batches) is not BatchSampler:
        return None
    sampler: Any = loader.sampler if batches is None else batches.sampler
    if type(sampler) is not RandomSampler or sampler.generator is None or sampler.replacement:
        return None
    return sampler if len(sampler) == len(sampler.data_source) else None


@final
class Order(Sampler[int]):
    """What a `RandomSampler` gives, without its end."""

    def __init__(self, sampler: RandomSampler) -> None:
        self.sampler = sampler

    def __iter__(self) -> Iterator[int]:
        return islice(iter(self.sampler), len(self.sampler))

    def __len__(self) -> int:
        return len(self.sampler)


@final
class UntilEnd:
    """Batches; with the one that is the ``left``-th to be asked for the order has come to its end."""

    def __init__(self, batches: Iterator[Any], sampler: RandomSampler, left: int) -> None:
        self.batches, self.left = batches, left
        self.generator, self.samples = sampler.generator, len(sampler)
        if left <= 0:
            self.end()

    def __iter__(self) -> UntilEnd:
        return self

    def __next__(self) -> Any:
        self.left -= 1
        if self.left == 0:
            self.end()
        return next(self.batches)

    def end(self) -> None:
        """Draw what the sampler draws: another order, of which it takes nothing."""
        torch.randperm(self.samples, generator=self.generator)
