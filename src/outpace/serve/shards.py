"""How evenly shards fall to those that read them whole: the rank with the most holds up all others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

READERS = 8
UNEVEN = 1.05
"""of the mean, from which on it is told"""


class Skew(NamedTuple):
    """How evenly shards fall to those that read them."""

    skew: float
    """largest amount over the mean: all others wait while that one reads on"""
    idle: int
    """readers that get nothing"""
    amounts: tuple[float, ...]


def shard_skew(sizes: Sequence[float], ranks: int = 1, workers: int = 1) -> Skew:
    """How unlike the amounts are that readers get where shards are dealt out in turn.

    ``sizes``: samples or bytes of each shard, in order. Shard i goes to rank i mod ``ranks``, and of
    a rank's shards each in turn to its ``workers``, as WebDataset deals them. A skew of 1.0 is even.
    Raises ValueError where there are no shards or no readers.
    """
    if not sizes or ranks < 1 or workers < 0:
        raise ValueError(
            f"{len(sizes)} shards cannot be dealt to {ranks} ranks of {workers} workers"
        )
    amounts = tuple(float(sum(part)) for part in _dealt(sizes, ranks, max(1, workers)))
    mean = sum(amounts) / len(amounts)
    return Skew(max(amounts) / mean if mean else 1.0, amounts.count(0.0), amounts)


def _dealt(sizes: Sequence[float], ranks: int, workers: int) -> Iterator[Sequence[float]]:
    for rank in range(ranks):
        own = sizes[rank::ranks]
        for worker in range(workers):
            yield own[worker::workers]


def told(sizes: Sequence[float]) -> str | None:
    """What dealing several shards to `READERS` would do, in words; None where that is little."""
    found = shard_skew(sizes, READERS)
    if len(sizes) == 1 or found.skew < UNEVEN:
        return None
    idle = f", and {found.idle} of them nothing" if found.idle else ""
    return (
        f"dealt out whole to {READERS} readers, the shards would give one {found.skew:.2f} times the mean"
        f"{idle}; by this index all get as many"
    )
