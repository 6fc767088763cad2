"""How evenly shards fall to those that read them whole: the reader with the most holds up all others."""

from __future__ import annotations

from collections.abc import Sequence

READERS = 8
UNEVEN = 1.05
"""of the mean, from which on it is told"""


def told(sizes: Sequence[int]) -> str | None:
    """What dealing several shards to `READERS` would do, in words; None where that is little.

    ``sizes``: samples of each shard, in order. They are dealt out in turn, as WebDataset deals them.
    """
    amounts = [sum(sizes[reader::READERS]) for reader in range(READERS)]
    mean = sum(amounts) / READERS
    skew = max(amounts) / mean if mean else 1.0
    if len(sizes) == 1 or skew < UNEVEN:
        return None
    none = amounts.count(0)
    idle = f", and {none} of them nothing" if none else ""
    return (
        f"dealt out whole to {READERS} readers, the shards would give one {skew:.2f} times the mean"
        f"{idle}; by this index all get as many"
    )
