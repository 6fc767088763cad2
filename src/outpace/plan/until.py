"""Training until the time is up, in a script's own lines: ``for batch in outpace.until("18h", loader)``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, MutableMapping
from typing import Any, TypeVar, get_args

from torch.utils.weak import WeakIdKeyDictionary

from outpace.errors import UsageError
from outpace.plan.budget import duration, seconds_of
from outpace.plan.countdown import since_boot
from outpace.plan.crew import rank_among_several
from outpace.plan.schedule import Schedule, rate
from outpace.seams.host import on_stderr
from outpace.seams.rate import finds_its_rate, set_rate

T = TypeVar("T")

RECENT = 5
"""steps by which the next one's length is judged, without the first, which compiles and warms up; one
alone may have been a pause"""
USED_ONCE = "an iterator can be used once: give a list"


def until(
    budget: str | float,
    loader: Iterable[T],
    *,
    optimizer: Any = None,
    reserve: str | float = 0.0,
    schedule: Schedule = "linear",
    clock: Callable[[], float] = since_boot,
) -> Iterator[T]:
    """Batches of ``loader``, epoch after epoch, until the budget is used but for its reserve.

    ``budget`` and ``reserve`` are times such as ``"18h"`` or seconds, from the first batch on; the
    last step ends before they are over, as far as those before it tell, of which the first, most often
    slow, tells nothing. The rates of ``optimizer`` follow the schedule from what they are at the first
    batch, those of a group that joins later from what it brings; after the loop they are that again. The
    time goes on while the machine sleeps. Raises UsageError for times that cannot be read or leave nothing,
    for a loader without batches, an optimizer without a rate, and in one of several processes that train
    together, which would not end at the same step. A generator that ends before the time is up ends the
    training, which is said on stderr.

    Example::

        for x, y in outpace.until("18h", loader, optimizer=optimizer, reserve="20m"):
            ...
    """
    seconds = seconds_of(budget) - (seconds_of(reserve) if reserve else 0.0)
    if seconds <= 0:
        raise UsageError(
            f"a reserve of {reserve} leaves nothing of {budget}", "reserve less than the budget"
        )
    if schedule not in get_args(Schedule):
        choices = ", ".join(get_args(Schedule))
        raise UsageError(f"{schedule!r} is no schedule", f"choose one of {choices}")
    if optimizer is not None and finds_its_rate(optimizer):
        raise UsageError(
            f"{type(optimizer).__name__} finds its rate itself: there is none to lower",
            "leave optimizer= out",
        )
    if rank_among_several() is not None:
        raise UsageError(
            "outpace.until ends each process by its own clock, and several train together here",
            "train on one, or count steps",
        )
    return _batches(seconds, loader, optimizer, schedule, clock)


def has_no_rate(optimizer: Any) -> bool:
    """Whether all groups are at rate 0, as a schedule sets it that warms up from there."""
    return not any(float(group["lr"]) for group in optimizer.param_groups)


def _batches(
    seconds: float,
    loader: Iterable[T],
    optimizer: Any,
    schedule: Schedule,
    clock: Callable[[], float],
) -> Iterator[T]:
    # By a weight of each group: loading a state replaces the groups, and some may be taken out.
    largest: MutableMapping[Any, float] = WeakIdKeyDictionary()
    try:
        yield from _drawn(seconds, loader, optimizer, schedule, clock, largest)
    finally:  # what trains on after the loop, or another day, begins at the rates that the script gave
        for group in optimizer.param_groups if optimizer is not None else []:
            if group["params"] and (own := largest.get(group["params"][0])) is not None:
                set_rate(group, own)


def _drawn(
    seconds: float,
    loader: Iterable[T],
    optimizer: Any,
    schedule: Schedule,
    clock: Callable[[], float],
    largest: MutableMapping[Any, float],
) -> Iterator[T]:
    begun = last = clock()
    recent: list[float] = []
    epoch = steps = 0
    while True:
        set_epoch = getattr(getattr(loader, "sampler", None), "set_epoch", None)
        if set_epoch is not None:
            set_epoch(epoch)
        none = True
        for batch in loader:
            none = False
            step_s = sorted(recent)[len(recent) // 2] if recent else 0.0
            ends = clock() - begun + step_s
            if ends > seconds:
                return
            # The last step ends up to one before the time is up: the rate is down by then.
            used = ends / max(1e-9, seconds - step_s)
            if not steps and optimizer is not None and has_no_rate(optimizer):
                raise UsageError(
                    "the optimizer's rate is 0 at the first batch, and would be to the end",
                    "leave out the schedule that warms it up, or leave out optimizer=",
                )
            for group in optimizer.param_groups if optimizer is not None else []:
                if group["params"]:
                    most = largest.setdefault(group["params"][0], float(group["lr"]))
                    set_rate(group, most * rate(schedule, used))
            yield batch
            now_s = clock()
            recent = [*recent[1 - RECENT :], now_s - last] if steps else []
            last, steps = now_s, steps + 1
        if none and not steps:
            raise UsageError("the loader gives no batch", USED_ONCE)
        if none:  # the lines after the loop are to save what was learnt
            on_stderr(
                f"outpace: the loader was used up after {duration(clock() - begun)} of "
                f"{duration(seconds)}: training ends here\nhint: {USED_ONCE}"
            )
            return
        epoch += 1
