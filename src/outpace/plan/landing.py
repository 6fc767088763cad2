"""Training until the time is up: the learning rate follows the share of the budget that is used.

A rate that falls to zero over the whole budget is worth more than the same steps at a constant one
(Li et al. 2020, "Budgeted training"; Defazio et al. 2023, arXiv 2310.07831): so the clock that the
schedule follows is that of the deadline, and a slow machine trains for fewer steps, not with a
schedule cut off.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal, TypeVar

from outpace.errors import UsageError
from outpace.plan.budget import seconds_of

T = TypeVar("T")
Schedule = Literal["linear", "cosine", "one-cycle"]

RISE = 0.25
"""share of a one-cycle in which the rate rises (Smith 2018)"""
START = 1 / 25
"""of the rate, where it begins to rise"""
RECENT = 5
"""steps by which the next one's length is judged; one alone may have been a pause"""


def rate(schedule: Schedule, used: float) -> float:
    """The learning rate, as a share of its largest, when this share of the budget is used."""
    used = min(1.0, max(0.0, used))
    if schedule == "linear":
        return 1.0 - used
    if schedule == "cosine":
        return 0.5 * (1.0 + math.cos(math.pi * used))
    if used < RISE:
        return START + (1.0 - START) * used / RISE
    return 0.5 * (1.0 + math.cos(math.pi * (used - RISE) / (1.0 - RISE)))


def until(
    budget: str | float,
    loader: Iterable[T],
    *,
    optimizer: Any = None,
    reserve: str | float = 0.0,
    schedule: Schedule = "linear",
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[T]:
    """Batches of ``loader``, epoch after epoch, until the budget is used but for its reserve.

    ``budget`` and ``reserve`` are times such as ``"18h"`` or seconds, from the first batch on; the
    last step ends before they are over, as far as those before it tell. The rates of ``optimizer``
    follow the schedule from what they are at the first batch. Raises UsageError for times that
    cannot be read or leave nothing, for a loader without batches, and in one of several processes
    that train together, which would not end at the same step.

    Example::

        for x, y in outpace.until("18h", loader, optimizer=optimizer, reserve="20m"):
            ...
    """
    seconds = seconds_of(budget) - (seconds_of(reserve) if reserve else 0.0)
    if seconds <= 0:
        raise UsageError(
            f"a reserve of {reserve} leaves nothing of {budget}", "reserve less than the budget"
        )
    if schedule not in ("linear", "cosine", "one-cycle"):
        raise UsageError(f"{schedule!r} is no schedule", "choose linear, cosine or one-cycle")
    if _several_processes():
        raise UsageError(
            "outpace.until ends each process by its own clock, and several train together here",
            "train on one, or count steps",
        )
    return _batches(seconds, loader, optimizer, schedule, clock)


def _batches(
    seconds: float,
    loader: Iterable[T],
    optimizer: Any,
    schedule: Schedule,
    clock: Callable[[], float],
) -> Iterator[T]:
    groups = optimizer.param_groups if optimizer is not None else []
    largest = [float(group["lr"]) for group in groups]
    begun = last = clock()
    recent: list[float] = []
    epoch = 0
    while True:
        set_epoch = getattr(getattr(loader, "sampler", None), "set_epoch", None)
        if set_epoch is not None:
            set_epoch(epoch)
        none = True
        for batch in loader:
            none = False
            ends = clock() - begun + (sorted(recent)[len(recent) // 2] if recent else 0.0)
            if ends > seconds:
                return
            for group, most in zip(groups, largest, strict=True):
                now = most * rate(schedule, ends / seconds)
                # A capturable optimizer keeps its rate in a tensor that it reads on the device.
                if hasattr(group["lr"], "fill_"):
                    group["lr"].fill_(now)
                else:
                    group["lr"] = now
            yield batch
            now_s = clock()
            recent = [*recent[1 - RECENT :], now_s - last]
            last = now_s
        if none:
            raise UsageError(
                "the loader gives no batch", "an iterator can be used once: give a list"
            )
        epoch += 1


def _several_processes() -> bool:
    import sys

    torch = sys.modules.get("torch")
    if torch is None or not torch.distributed.is_available():
        return False
    return bool(torch.distributed.is_initialized() and torch.distributed.get_world_size() > 1)
