"""A DataLoader that is gone on with at a sample of its order, where batches have another size than before."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch.utils.data import BatchSampler, DataLoader, IterableDataset


class Sampled(NamedTuple):
    """Samples of an epoch and of a batch, and whether a last batch of fewer is left out."""

    total: int
    size: int
    drop_last: bool

    def batches(self, samples: int) -> int:
        """Of so many samples."""
        return samples // self.size if self.drop_last else -(-samples // self.size)


def sampled(source: Any) -> Sampled | None:
    """Of a DataLoader that has its sampler's samples in their order; None of anything else."""
    by_batch = getattr(source, "batch_sampler", None)
    if type(source) is not DataLoader or type(by_batch) is not BatchSampler:
        return None
    try:
        total = len(by_batch.sampler)  # type: ignore[arg-type]
    except TypeError:
        return None
    if isinstance(source.dataset, IterableDataset):
        return None
    return Sampled(total, by_batch.batch_size, by_batch.drop_last)


@contextmanager
def seed_drawn(source: Any, drew: bool, *, draws: bool) -> Iterator[None]:
    """Inside, a DataLoader is begun from the same state of its generator as one that ``drew`` a seed for its
    workers, or did not, whether it ``draws`` one now: the order of samples is drawn after that.
    """
    if drew == draws or not isinstance(source, DataLoader):
        yield
    elif drew:
        torch.empty((), dtype=torch.int64).random_(generator=source.generator)
        yield
    else:
        own, source.generator = source.generator, torch.Generator()
        try:
            yield
        finally:
            source.generator = own


def begun_at(loader: DataLoader[Any], samples: int) -> Iterator[Any]:
    """Its batches after so many samples; the order is drawn before it returns."""
    by_batch = loader.batch_sampler
    assert isinstance(by_batch, BatchSampler)

    def rest() -> Iterator[list[Any]]:
        order = itertools.islice(by_batch.sampler, samples, None)
        yield from BatchSampler(order, by_batch.batch_size, by_batch.drop_last)

    batches = iter(
        DataLoader(
            loader.dataset,
            batch_sampler=rest(),
            num_workers=loader.num_workers,
            collate_fn=loader.collate_fn,
            pin_memory=loader.pin_memory,
            timeout=loader.timeout,
            worker_init_fn=loader.worker_init_fn,
            multiprocessing_context=loader.multiprocessing_context,
            generator=loader.generator,
            prefetch_factor=loader.prefetch_factor,
        )
    )
    return itertools.chain(list(itertools.islice(batches, 1)), batches)
