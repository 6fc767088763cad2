"""Whether weights, gradients and what is kept of them are numbers: a loss may be none without harm.

Where all targets of a batch are ignored, torch's mean over them is not a number, and its gradient zero.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def finite(tensors: Iterable[Any]) -> bool:
    """Whether they are, or this rank's parts of them."""
    own = (each.to_local() if hasattr(each, "to_local") else each for each in tensors)
    dense = (part.coalesce().values() if part.is_sparse else part for part in own)
    return all(bool(part.isfinite().all()) for part in dense)
