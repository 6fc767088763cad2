"""What a row of the table of bottlenecks has to say."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from outpace.diagnose.costs import Cost
from outpace.records.evidence import Evidence


class Told(NamedTuple):
    """What a row has to say."""

    cost: Cost
    where: str | None
    reason: str
    sure: bool = True


Row = Callable[[Evidence], Iterator[Told]]
