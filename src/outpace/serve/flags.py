"""Flags in memory that forked workers share: what one of them has checked no other checks again."""

from __future__ import annotations

import mmap

import numpy as np
from numpy.typing import NDArray


def shared_flags(count: int) -> NDArray[np.bool_]:
    """So many, all False."""
    return np.frombuffer(mmap.mmap(-1, max(1, count)), np.bool_, count)
