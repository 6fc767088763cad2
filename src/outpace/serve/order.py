"""The order of samples, and the random numbers of each, as functions: nothing is kept, nothing drawn.

Where a sample stands in an epoch depends on the seed and the epoch alone, and what it draws on the
seed, the epoch and its index. So a training goes on in the middle of an epoch with other workers,
another number of ranks or another batch size, and sees the very same samples.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, final

import numpy as np
import torch
from numpy.random.bit_generator import ISeedSequence
from numpy.typing import NDArray

ROUNDS = 8
START = 2**64 - 2
"""in the place of an index: where `Repeated` begins in an epoch; 2^64 - 1 is that of its keys"""
BLOCK = 1 << 14
"""positions that are permuted at once"""

Positions = NDArray[np.uint64]


def permuted(positions: NDArray[np.int64], size: int, seed: int, epoch: int) -> NDArray[np.int64]:
    """Indices at ``positions`` of a permutation of ``size`` samples.

    A Feistel network over pairs of a x b >= size numbers, walked on where it leaves the range
    (Black & Rogaway 2002, "Ciphers with arbitrary finite domains"): no memory but for what is
    asked. Raises ValueError for positions out of range.
    """
    if len(positions) and not 0 <= positions.min() <= positions.max() < size:
        raise ValueError(f"positions are to be 0 to {size - 1}")
    a = int(np.ceil(np.sqrt(size))) or 1
    b = -(-size // a) or 1
    keys = _keys(seed, epoch)
    found = _feistel(positions.astype(np.uint64), a, b, keys)
    outside = np.flatnonzero(found >= size)
    while len(outside):
        found[outside] = _feistel(found[outside], a, b, keys)
        outside = outside[found[outside] >= size]
    return found.astype(np.int64)


def _feistel(numbers: Positions, a: int, b: int, keys: Positions) -> Positions:
    left, right = numbers % np.uint64(a), numbers // np.uint64(a)
    for i, key in enumerate(keys):
        left, right = right, (left + _mixed(right ^ key)) % np.uint64(b if i % 2 else a)
    return right * np.uint64(a) + left


def _mixed(x: Positions) -> Positions:
    """Finaliser of splitmix64 (Steele et al. 2014), kept to 32 bits so that sums do not overflow."""
    with np.errstate(over="ignore"):
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x >> np.uint64(32)


def _keys(seed: int, epoch: int) -> Positions:
    return np.asarray(_philox(seed, epoch, 2**64 - 1).random_raw(ROUNDS), dtype=np.uint64)


class _Key(ISeedSequence):
    """A key as a seed. Given as ``key=``, numpy first draws a seed from the system, which takes longer
    than all the rest, and throws it away.
    """

    def __init__(self, words: Positions) -> None:
        self.words = words

    def generate_state(self, n_words: int, dtype: Any = np.uint64) -> Positions:
        """The two words that Philox asks for."""
        return self.words


@lru_cache(maxsize=4)
def _key(seed: int, epoch: int) -> Any:
    return _Key(np.array([seed % 2**64, epoch % 2**64], dtype=np.uint64))


def _philox(seed: int, epoch: int, counter: int) -> np.random.Philox:
    place = np.array([0, 0, 0, counter], dtype=np.uint64)
    return np.random.Philox(_key(seed, epoch), counter=place)


class Order:
    """Indices in the order of an epoch, a slice at a time; the block last permuted is kept."""

    def __init__(self, size: int, seed: int, *, shuffle: bool) -> None:
        self.size, self.seed, self.shuffle = size, seed, shuffle
        self._block: tuple[int, int, NDArray[np.int64]] | None = None

    def indices(self, epoch: int, start: int, stop: int) -> NDArray[np.int64]:
        """Of positions ``start`` to ``stop``; those past the end begin again at the start."""
        positions = np.arange(start, stop) % max(1, self.size)
        if not self.shuffle:
            return positions
        first, last = start // BLOCK, (stop - 1) // BLOCK
        if stop > self.size or first != last:
            return permuted(positions, self.size, self.seed, epoch)
        block = self._block
        if block is None or block[:2] != (epoch, first):
            inside = np.arange(first * BLOCK, min(self.size, (first + 1) * BLOCK))
            block = (epoch, first, permuted(inside, self.size, self.seed, epoch))
            self._block = block
        return block[2][positions - first * BLOCK]


@final
class Repeated:
    """Indices of epochs in which sample i comes ``factors[i]`` times on average.

    In each epoch it comes that often, rounded up or down, by points at equal distances along the sum of
    the factors, from a start that depends on seed and epoch (systematic sampling, Madow 1949). So all
    epochs have as many samples, the sum rounded up, and one with a factor of 1 or more is in each.
    """

    def __init__(
        self, factors: Sequence[float] | NDArray[np.float64], seed: int, *, shuffle: bool
    ) -> None:
        self.seed, self.shuffle = seed, shuffle
        self.ends = np.cumsum(np.asarray(factors, dtype=np.float64))
        self.size = max(1, math.ceil(self.ends[-1] - 1e-9))
        self.ends *= self.size / self.ends[-1]
        self._order = Order(self.size, seed, shuffle=shuffle)

    def indices(self, epoch: int, start: int, stop: int) -> NDArray[np.int64]:
        """Of positions ``start`` to ``stop``; those past the end begin again at the start."""
        first = generator(self.seed, epoch, START).random()
        points = self._order.indices(epoch, start, stop) + first
        found = np.searchsorted(self.ends, points, side="right")
        return found.clip(max=len(self.ends) - 1).astype(np.int64)


def generator(seed: int, epoch: int, index: int) -> np.random.Generator:
    """The random numbers of one sample in one epoch: Philox, with the index for its counter."""
    return np.random.Generator(_philox(seed, epoch, index))


def seed_process(seed: int, epoch: int, index: int) -> None:
    """The same for samples that draw from the generators of the process: python, numpy, torch."""
    numbers = generator(seed, epoch, index).integers(2**32, size=3)
    random.seed(int(numbers[0]))
    np.random.seed(int(numbers[1]))
    torch.default_generator.manual_seed(int(numbers[2]))
