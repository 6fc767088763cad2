"""What a data set allows, found by trying: is it deterministic, can it be sliced, which images?

The generators of python, numpy and torch are put back as they were, and files that it opened are
closed. Drawing samples twice may still show in a data set that counts its draws; such runs are thrown
away.
"""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass
from time import perf_counter, thread_time
from typing import Any

import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
    default_collate,
)

from outpace.measure.statistics import median
from outpace.seams.generators import generators_kept, moved, states_taken
from outpace.serve.batches import Slices, Unlike, by_items, same_bits
from outpace.serve.cache import SampleCache, flatten
from outpace.serve.interpreter import share_held
from outpace.serve.length_of import length_of
from outpace.serve.one_thread import one_thread
from outpace.serve.open_files import none_opened

KNOWN = (
    SequentialSampler,
    RandomSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
    DistributedSampler,
)
"""samplers that make all of an epoch's order as it begins; but for one that gives samples again at random"""
TRIED, BY_ONE = 6, 2
"""samples that are drawn twice, and those that one of torch's threads draws too"""
HELD_S = 0.2
"""of samples that are drawn to see whether other threads run meanwhile"""
MADE, MAKING_S = 4, 1.0
"""batches that are made here, and seconds after which it is enough"""


@dataclass
class Probe:
    """What was found; None where it could not be tried."""

    deterministic: bool | None = None
    """the same sample is the same whenever it is drawn"""
    same_on_one_thread: bool | None = None
    """and where one of torch's threads draws it, as in a worker; None where that was not tried"""
    random_streams: tuple[str, ...] = ()
    sliceable: bool | None = None
    why_not_sliceable: str | None = None
    sample_bytes: int = 0
    samples: int | None = None
    drawn_s: float = 0.0
    """that a sample takes which is drawn here first: the longest of a few, as others may be kept already"""
    again_s: float | None = None
    """that a sample takes which was drawn before"""
    held: float | None = None
    """share of it in which no other thread can run Python; of samples that are collated as a batch"""


def has_own_sampler(loader: DataLoader[Any]) -> bool:
    """Whether the order of its samples may be made on the way: it is of a sampler that is not `KNOWN`."""
    batches, sampler = loader.batch_sampler, loader.sampler
    if batches is not None:
        if type(batches) is not BatchSampler:
            return True
        sampler = batches.sampler
    if type(sampler) is RandomSampler:
        return sampler.replacement or len(sampler) > len(sampler.data_source)
    return type(sampler) not in KNOWN


def probe(loader: DataLoader[Any], *, slices: bool = True, workers: bool = True) -> Probe:
    """Try the data set of a DataLoader; ``slices``: whether it can be sliced too; ``workers``: whether it
    gives the same on one of torch's threads, as a worker has.
    """
    dataset: Any = loader.dataset
    if isinstance(dataset, IterableDataset):
        return Probe()
    found = Probe(samples=length_of(dataset))
    if found.samples is None or not loader._auto_collation:
        return found
    with generators_kept(), none_opened(dataset):
        indices = _some(found.samples)
        fetch = by_items(loader)
        first, streams = [], set()
        same, again = True, []
        for index in indices[:TRIED]:
            before, begun = states_taken(), perf_counter()
            first.append(fetch([index]))
            found.drawn_s = max(found.drawn_s, perf_counter() - begun)
            streams |= moved(before, states_taken())
        # All of them first: the shard or block that is open still is not what is kept.
        for index, one in zip(indices, first, strict=False):
            begun = perf_counter()
            other = fetch([index])
            again.append(perf_counter() - begun)
            same = same and same_bits(one, other)
        found.again_s = median(again)
        if workers and slices:
            few = indices[: max(2, int(HELD_S / max(found.again_s, 1e-6)))]
            found.held = share_held(lambda: fetch(few[: loader.batch_size or 1]))
        found.random_streams = tuple(sorted(streams))
        found.sample_bytes = _bytes(first[-1])
        found.deterministic = same = same and not streams
        if same and workers:
            found.same_on_one_thread = _same_by_one(loader, indices, found.again_s)
        if same and slices:
            _try_slicing(loader, indices, found)
        elif slices:
            found.sliceable, found.why_not_sliceable = False, "samples are random"
    return found


def _same_by_one(loader: DataLoader[Any], indices: list[int], sample_s: float) -> bool:
    """Whether one of torch's threads makes the same samples, and batches of its own kind, as all of them."""
    if torch.get_num_threads() == 1:
        return True
    fetch, some = by_items(loader), [[index] for index in indices[:BY_ONE]]
    if loader.collate_fn is not default_collate:
        count = min(loader.batch_size or 1, int(MAKING_S / max(sample_s, 1e-6)))
        some.append(indices[: max(2, count)])
    on_all = [fetch(each) for each in some]
    with one_thread():
        return same_bits(on_all, [fetch(each) for each in some])


def _try_slicing(loader: DataLoader[Any], indices: list[int], found: Probe) -> None:
    slices = Slices(loader)
    try:
        for part in (indices, indices[::-1], indices[: max(1, len(indices) // 2)]):
            slices.fetch(part)
            found.sliceable = True
    except Unlike as reason:
        found.sliceable, found.why_not_sliceable = False, str(reason)


def _some(length: int) -> list[int]:
    chooser = random.Random(0)
    return [chooser.randrange(length) for _ in range(min(32, length))]


def _bytes(batch: Any) -> int:
    try:
        leaves, _ = flatten(batch)
    except Unlike:
        return 0
    return sum(leaf.numel() * leaf.element_size() for leaf in leaves)


def gather_time(loader: DataLoader[Any], how: str, limit: int) -> float | None:
    """Seconds that a batch takes by ``slice`` or from a warm ``cache``; None where it cannot be."""
    try:
        with generators_kept(loader.generator), none_opened(loader.dataset):
            indices = next(iter(loader.batch_sampler), None)  # type: ignore[arg-type]
            if indices is None:
                return None
            fetch: Any = (Slices(loader) if how == "slice" else SampleCache(loader, limit)).fetch
            took = []
            for _ in range(8):
                start = perf_counter()
                fetch(indices)
                took.append(perf_counter() - start)
            return median(took[3:])  # one is compared with its items now and then
    except (Unlike, NotImplementedError):
        return None


def making_time(loader: DataLoader[Any]) -> float | None:
    """CPU seconds that this thread takes for a batch, sample by sample; None where it cannot be had."""
    if isinstance(loader.dataset, IterableDataset) or not loader._auto_collation:
        return None
    with generators_kept(loader.generator), none_opened(loader.dataset):
        fetch, spent = by_items(loader), []
        for indices in itertools.islice(iter(loader.batch_sampler), MADE):  # type: ignore[arg-type]
            begun = thread_time()
            fetch(indices)
            spent.append(thread_time() - begun)
            if sum(spent) > MAKING_S:
                break
        return min(spent, default=None)
