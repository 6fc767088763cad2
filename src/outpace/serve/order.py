"""The order of samples, and the random numbers of each, as functions: nothing is kept, nothing drawn.

Where a sample stands in an epoch depends on the seed and the epoch alone, and what it draws on the
seed, the epoch and its index, and of one that comes several times in an epoch on which of them it is. So a
training goes on in the middle of an epoch with other workers, another number of ranks or another batch
size, and sees the very same samples.
"""

from __future__ import annotations

import hashlib
import math
import random
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple, final

import numpy as np
import torch
from numpy.random.bit_generator import ISeedSequence
from numpy.typing import NDArray

ROUNDS = 8
START = 2**64 - 2
"""in the place of an index: where `Repeated` begins in an epoch; 2^64 - 1 is that of its keys"""
CHUNK = 1 << 14
"""positions whose indices are made at once, at the least: batches are slices of them"""

Words = NDArray[np.uint64]
Indices = NDArray[np.int64]


def permuted(positions: Indices, size: int, seed: int, epoch: int) -> Indices:
    """Indices at ``positions`` of a permutation of ``size`` samples.

    A Feistel network over pairs of a x b >= size numbers, walked on where it leaves the range
    (Black & Rogaway 2002, "Ciphers with arbitrary finite domains"): no memory but for what is
    asked and the tables of its rounds, 64 bytes times the root of ``size``. Raises ValueError for
    positions out of range.
    """
    if len(positions) and not 0 <= positions.min() <= positions.max() < size:
        raise ValueError(f"positions are to be 0 to {size - 1}")
    a = int(np.ceil(np.sqrt(size))) or 1
    rounds = _rounds(a, -(-size // a) or 1, seed, epoch)
    found = _feistel(positions, a, rounds)
    outside = np.flatnonzero(found >= size)
    while len(outside):
        again = _feistel(found[outside], a, rounds)
        found[outside] = again
        outside = outside[again >= size]
    return found


class _Round(NamedTuple):
    """One round of the network."""

    modulus: int
    added: Indices
    """to one half, for each number that the other half can be; less the modulus"""


@lru_cache(maxsize=4)
def _rounds(a: int, b: int, seed: int, epoch: int) -> tuple[_Round, ...]:
    """What is added depends on a half alone, of which there are few: a table takes the place of
    mixing each number anew, and a comparison that of a division.
    """
    found = []
    for i, key in enumerate(_philox(seed, epoch, 2**64 - 1).random_raw(ROUNDS)):
        modulus, other = (b, a) if i % 2 else (a, b)
        mixed = _mixed(np.arange(other, dtype=np.uint64) ^ np.uint64(key)) % np.uint64(modulus)
        found.append(_Round(modulus, mixed.astype(np.int64) - modulus))
    return tuple(found)


def _feistel(numbers: Indices, a: int, rounds: Sequence[_Round]) -> Indices:
    right = numbers // a
    left = numbers - right * a
    for modulus, added in rounds:
        total = added.take(right)
        total += left
        total += (total >> 63) & modulus  # where it is negative
        left, right = right, total
    return right * a + left


def _mixed(x: Words) -> Words:
    """Finaliser of splitmix64 (Steele et al. 2014), kept to 32 bits so that sums do not overflow."""
    with np.errstate(over="ignore"):
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x >> np.uint64(32)


class _Key(ISeedSequence):
    """A key as a seed. Given as ``key=``, numpy first draws a seed from the system, which takes longer
    than all the rest, and throws it away.
    """

    def __init__(self, words: Words) -> None:
        self.words = words

    def generate_state(self, n_words: int, dtype: Any = np.uint64) -> Words:
        """The two words that Philox asks for."""
        return self.words


@lru_cache(maxsize=4)
def _key(seed: int, epoch: int) -> Any:
    return _Key(np.array([seed % 2**64, epoch % 2**64], dtype=np.uint64))


def _philox(seed: int, epoch: int, counter: int, copy: int = 0) -> np.random.Philox:
    place = np.array([0, 0, copy % 2**64, counter], dtype=np.uint64)
    return np.random.Philox(_key(seed, epoch), counter=place)


class Drawn(NamedTuple):
    """Samples in the order of an epoch."""

    indices: Indices
    copies: Indices | None = None
    """of a sample that comes several times each has another number; None where each comes once, as copy 0"""

    def part(self, which: slice) -> Drawn:
        """Some of them, as views."""
        return Drawn(self.indices[which], None if self.copies is None else self.copies[which])


class Epochs(ABC):
    """Indices in the order of each epoch. Subclasses are final: one a way to order."""

    size: int
    """of an epoch"""
    seed: int
    shuffle: bool
    repeats: str | None = None
    """a digest of how often each sample comes, where that is not once"""
    _chunk: tuple[int, int, Drawn] | None = None
    """epoch, first position and samples of what was made last"""

    @abstractmethod
    def at(self, epoch: int, positions: Indices) -> Drawn:
        """The samples at some positions of an epoch, 0 to ``size`` - 1."""

    def drawn(self, epoch: int, start: int, stop: int) -> Drawn:
        """Of positions ``start`` to ``stop``, not to be written to; those past the end begin again
        at the start. Fastest where each call goes on from the one before.
        """
        if stop > self.size:
            return self.at(epoch, np.arange(start, stop) % max(1, self.size))
        chunk = self._chunk  # one look: another thread may make the next
        if chunk is None or not (
            chunk[0] == epoch and chunk[1] <= start and stop <= chunk[1] + len(chunk[2].indices)
        ):
            last = min(self.size, max(stop, start + CHUNK))
            chunk = epoch, start, self.at(epoch, np.arange(start, last))
            chunk[2].indices.flags.writeable = False
            self._chunk = chunk
        return chunk[2].part(slice(start - chunk[1], stop - chunk[1]))

    def indices(self, epoch: int, start: int, stop: int) -> Indices:
        """The same, without telling copies apart."""
        return self.drawn(epoch, start, stop).indices

    def share(self, epoch: int, first: int, batch_size: int, rank: int, world: int) -> Drawn:
        """Those that one rank gets of a batch of all ranks that begins at ``first``: the last one is
        filled up, so that each has as many.
        """
        last = first + batch_size * world
        if last > self.size:
            last = first + -(-(self.size - first) // world) * world
        own = self.drawn(epoch, first, last).part(slice(rank, None, world))
        return Drawn(own.indices.copy(), None if own.copies is None else own.copies.copy())


@final
class Order(Epochs):
    """Each sample once: in another order in each epoch, or as they are."""

    def __init__(self, size: int, seed: int, *, shuffle: bool) -> None:
        self.size, self.seed, self.shuffle = size, seed, shuffle

    def at(self, epoch: int, positions: Indices) -> Drawn:
        """The samples at some positions of an epoch."""
        return Drawn(
            permuted(positions, self.size, self.seed, epoch) if self.shuffle else positions
        )


@final
class Repeated(Epochs):
    """Indices of epochs in which sample i comes ``factors[i]`` times on average.

    In each epoch it comes that often, rounded up or down, by points at equal distances along the sum of
    the factors, from a start that depends on seed and epoch (systematic sampling, Madow 1949). So all
    epochs have as many samples, the sum rounded up, and one with a factor of 1 or more is in each.
    """

    def __init__(
        self, factors: Sequence[float] | NDArray[np.float64], seed: int, *, shuffle: bool
    ) -> None:
        self.seed, self.shuffle = seed, shuffle
        given = np.asarray(factors, dtype=np.float64)
        self.repeats = hashlib.sha256(given.tobytes()).hexdigest()[:16]
        self.ends = np.cumsum(given)
        self.size = max(1, math.ceil(self.ends[-1] - 1e-9))
        self.ends *= self.size / self.ends[-1]
        self._order = Order(self.size, seed, shuffle=shuffle)

    def at(self, epoch: int, positions: Indices) -> Drawn:
        """The samples at some positions of an epoch."""
        points = self._order.at(epoch, positions).indices
        start = generator(self.seed, epoch, START).random()
        found = np.searchsorted(self.ends, points + start, side="right")
        found = found.clip(max=len(self.ends) - 1).astype(np.int64)
        begins = self.ends[found - 1] * (found > 0)
        return Drawn(found, points - np.ceil(begins - start).astype(np.int64))


def generator(seed: int, epoch: int, index: int, copy: int = 0) -> np.random.Generator:
    """The random numbers of one sample in one epoch: Philox, with the index for its counter; those of a
    further ``copy`` are others.
    """
    return np.random.Generator(_philox(seed, epoch, index, copy))


def seed_process(seed: int, epoch: int, index: int, copy: int = 0) -> None:
    """The same for samples that draw from the generators of the process: python, numpy, torch."""
    numbers = generator(seed, epoch, index, copy).integers(2**32, size=3)
    random.seed(int(numbers[0]))
    np.random.seed(int(numbers[1]))
    torch.default_generator.manual_seed(int(numbers[2]))
