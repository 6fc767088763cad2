"""Many strings in two numpy arrays, so that forked workers can share a million paths.

Reading a string of a list writes its reference count, and so copies the list's pages into every
worker; reading an array writes nothing. Strings are decoded anew each time they are asked for.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import final

import numpy as np
from numpy.typing import NDArray


@final
class PackedStrings(Sequence[str]):
    """Strings behind one another: the i-th is ``data[offsets[i] : offsets[i + 1]]`` in UTF-8.

    File names that are not UTF-8 come back as the operating system gave them (surrogateescape).
    There are no slices.
    """

    def __init__(self, strings: Iterable[str] = ()) -> None:
        parts = [text.encode("utf-8", "surrogateescape") for text in strings]
        self.offsets: NDArray[np.int64] = np.zeros(len(parts) + 1, np.int64)
        np.cumsum([len(part) for part in parts], out=self.offsets[1:])
        self.data: NDArray[np.uint8] = np.frombuffer(b"".join(parts), np.uint8)

    @staticmethod
    def of(data: NDArray[np.uint8], offsets: NDArray[np.int64]) -> PackedStrings:
        """From the arrays of others."""
        found = PackedStrings()
        found.data, found.offsets = data, offsets
        return found

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> str:  # type: ignore[override]
        at = position(index, len(self))
        part = self.data[self.offsets[at] : self.offsets[at + 1]]
        return part.tobytes().decode("utf-8", "surrogateescape")


def position(index: int, length: int) -> int:
    """An index from 0 on, also of one that counts from the end; IndexError beyond."""
    at = operator.index(index)
    if not -length <= at < length:
        raise IndexError(f"index {at} of {length}")
    return at % length
