"""What a row of the table of bottlenecks has to say."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from outpace.diagnose.costs import Cost
from outpace.records.evidence import Evidence

SHORT_S = 0.01


class Told(NamedTuple):
    """What a row has to say."""

    cost: Cost
    where: str | None
    reason: str
    sure: bool = True


def in_ms(seconds: float, whole_s: float, between: str = "of") -> str:
    """A part of a time: ``12.3 of 120.0 ms``, with a digit more where the whole is short."""
    digits = 1 if whole_s >= SHORT_S else 2
    return f"{1e3 * seconds:.{digits}f} {between} {1e3 * whole_s:.{digits}f} ms"


Row = Callable[[Evidence], Iterator[Told]]
