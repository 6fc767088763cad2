"""Whether a DataLoader is sound: seeds of its workers, objects they copy, shuffling.

What is found are facts: `outpace.diagnose` says what follows. Nothing of the loader changes.

Honest limits: those of `outpace.serve.worker_seeds` and `outpace.measure.objects`; a shuffle is
judged by the classes in its batches alone, so an order that repeats in each epoch is not seen.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

from torch.utils.data import DataLoader

from outpace.measure.objects import Copied, copied_on_write
from outpace.measure.statistics import log_choose
from outpace.seams.start_method import start_method
from outpace.serve.worker_seeds import Seeds, generators, worker_seeds

__all__ = [
    "Copied",
    "Seeds",
    "Shuffled",
    "copied_on_write",
    "expected_distinct",
    "loading_facts",
    "shuffle_score",
    "worker_seeds",
]

LABELS = ("cls", "label", "labels", "target", "targets", "y")


class Shuffled(NamedTuple):
    """How well batches are mixed."""

    share: float
    """of the distinct classes that a perfect shuffle would give, on average"""
    distinct: float
    """distinct classes in a batch, on average"""
    expected: float
    """the same, of a perfect shuffle"""
    batches: int


def loading_facts(loader: DataLoader[Any]) -> dict[str, Any]:
    """Facts for the evidence of a training (fields of `records.input.Input`).

    Workers are tried only where there is cause: torch seeds all generators of the packages, so
    without a `worker_init_fn` and without a generator in the data set there is none.
    """
    facts: dict[str, Any] = {}
    if not loader.num_workers:
        return facts
    context = loader.multiprocessing_context
    if (start_method() if context is None else context.get_start_method()) == "fork":
        copied = copied_on_write(loader)
        facts["copied_bytes"], facts["copied_objects"] = copied.bytes, copied.objects
        facts["copied_holder"] = copied.holder
    suspect = loader.worker_init_fn is not None or bool(generators(loader.dataset))
    if suspect and loader.num_workers > 1:
        seeds = worker_seeds(loader)
        facts["same_draws"] = seeds.faulty if seeds is not None else ()
    return facts


def shuffle_score(
    batches: Iterable[Any],
    classes: Mapping[Any, int] | Sequence[int] | None = None,
    *,
    label: Callable[[Any], Any] | None = None,
    most: int | None = None,
) -> Shuffled:
    """Distinct classes in a batch, as a share of what a perfect shuffle would give.

    ``batches``: a DataLoader, or any batches of labels. ``label`` finds the labels of a batch; by
    default they are the last of a tuple, under a usual name in a dict, or the batch itself.
    ``classes``: how many samples of each class there are; where it is None the labels that come are
    counted, which is right only for a whole epoch. ``most``: look at no more batches.

    Raises ValueError where there are no labels.
    """
    found = [_values((label or _labels)(batch)) for batch in islice(batches, most)]
    found = [labels for labels in found if labels]
    if classes is None:
        counts = list(Counter(one for labels in found for one in labels).values())
    else:
        counts = list(classes.values() if isinstance(classes, Mapping) else classes)
    if not found or not sum(counts):
        raise ValueError("there are no labels to judge a shuffle by")
    perfect = {size: expected_distinct(counts, size) for size in {len(labels) for labels in found}}
    distinct = [len(set(labels)) for labels in found]
    expected = [perfect[len(labels)] for labels in found]
    shares = [one / best for one, best in zip(distinct, expected, strict=True)]
    n = len(found)
    return Shuffled(sum(shares) / n, sum(distinct) / n, sum(expected) / n, n)


def expected_distinct(counts: Iterable[int], size: int) -> float:
    """Classes among ``size`` samples drawn without replacement, of classes with these counts.

    A class of n among N samples is missing with the probability C(N - n, size) / C(N, size)
    (the hypergeometric distribution at 0).
    """
    counts = [count for count in counts if count > 0]
    total = sum(counts)
    size = min(size, total)
    whole = log_choose(total, size)
    missing = (
        math.exp(log_choose(total - count, size) - whole)
        for count in counts
        if total - count >= size
    )
    return len(counts) - sum(missing)


def _labels(batch: Any) -> Any:
    """The labels of a batch by the usual ways to hand them over."""
    if isinstance(batch, Mapping):
        for name in LABELS:
            if name in batch:
                return batch[name]
        raise ValueError(f"no labels among {sorted(map(str, batch))}: say by label= where they are")
    if isinstance(batch, tuple | list) and batch and _is_row(batch[-1]):
        return batch[-1]
    return batch


def _is_row(thing: Any) -> bool:
    """Whether a thing is many labels and not one."""
    return not isinstance(thing, str | bytes) and hasattr(thing, "__len__") and _dim(thing) > 0


def _dim(thing: Any) -> int:
    return int(getattr(thing, "ndim", 1))


def _values(labels: Any) -> list[Any]:
    """Labels as values that can be told apart."""
    row = labels.tolist() if hasattr(labels, "tolist") else list(labels)
    plain = [one.tolist() if hasattr(one, "tolist") else one for one in row]
    return [tuple(one) if isinstance(one, list) else one for one in plain]
