"""Several ranks that land together: the first decides, and all do the same at the same steps.

Each by its own clock, they would leave their loops at different steps, and wait for each other for
ever. So the first rank says, about once a second, how the rate goes down over the next steps and at
which of them the training ends; the others read it from the store by which the ranks met. They
count the same steps, as they exchange gradients in each of them. A rank that cannot read it tells the
first, and all keep their own rates.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

KEY = "outpace/landing"
GIVEN_UP = f"{KEY}/given up"
TRIES, AGAIN_S = 3, 1.0
"""to read the orders, and seconds between two: the others wait, for the gradients of this rank"""
FIRST = 2
"""the step at which they meet for the first time"""
EVERY_S = 1.0
MOST_STEPS = 500
"""between two meetings"""
NEVER = 1 << 60


@dataclass(frozen=True)
class Orders:
    """What holds from ``step`` on until ``then``, the step of the next meeting, if there is one.

    ``share``: of the way down, None before it begins; ``slope``: what each step adds to it; ``end``:
    the step after which the training ends; ``late``: it began so late that the rate is not to rise;
    ``falls``: of a plateau only the fall is left.
    """

    step: int = 0
    then: int = FIRST
    share: float | None = None
    slope: float = 0.0
    end: int | None = None
    late: bool = False
    falls: bool = False

    def share_at(self, step: int) -> float | None:
        """Of the way down, before a step."""
        if self.share is None:
            return None
        return min(1.0, self.share + self.slope * (step - self.step))


def steps_between(step_s: float) -> int:
    """Steps from one meeting to the next."""
    return max(1, min(MOST_STEPS, round(EVERY_S / max(1e-6, step_s))))


class Crew:
    """The ranks of one training; ``store`` is that by which they met (torch's)."""

    def __init__(self, store: Any, rank: int) -> None:
        self.store, self.rank = store, rank

    @property
    def leads(self) -> bool:
        """Whether this rank decides."""
        return self.rank == 0

    def meet(self, step: int, decide: Callable[[], Orders]) -> Orders:
        """The first rank's orders of this step; the others wait for them."""
        key = f"{KEY}/{step}"
        if self.leads:
            orders = Orders(step, NEVER)
            try:
                if not self.store.check([GIVEN_UP]):
                    orders = decide()
            finally:
                self.store.set(key, json.dumps(asdict(orders)))  # the others wait for it
            return orders
        return Orders(**json.loads(self.read(key)))

    def read(self, key: str) -> Any:
        """What the first rank wrote, once it has."""
        for _ in range(TRIES - 1):
            with contextlib.suppress(Exception):
                return self.store.get(key)
            time.sleep(AGAIN_S)
        return self.store.get(key)

    def give_up(self) -> None:
        """Have no rank land: from the next meeting on each keeps its own rates."""
        with contextlib.suppress(Exception):
            self.store.set(GIVEN_UP, "yes")


def rank_among_several() -> int | None:
    """Of this process, however those that train together were started; None where it trains alone."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.distributed.is_available():
        return None
    if not torch.distributed.is_initialized() or torch.distributed.get_world_size() < 2:
        return None
    return int(torch.distributed.get_rank())


def crew_of() -> Crew | None:
    """The ranks that this process trains with; None where they have not met."""
    from torch import distributed

    if not distributed.is_available() or not distributed.is_initialized():
        return None
    store = distributed.distributed_c10d._get_default_store()
    return Crew(store, distributed.get_rank())
