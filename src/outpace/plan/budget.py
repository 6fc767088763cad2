"""The time there is: a deadline less what is reserved for other things than training."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, time, timedelta

from outpace.errors import UsageError
from outpace.records.plan import Budget

UNITS = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
PART = re.compile(r"(\d+(?:\.\d+)?)\s*(s|min|m|h|d)?")


def seconds_of(value: str | float) -> float:
    """A time such as ``90``, ``45s``, ``2m`` or ``1h30m``. Raises UsageError for anything else.

    A number alone is seconds, but ``1h30`` may be meant as minutes.
    """
    text = str(value).strip().lower()
    parts = PART.findall(text)
    alone = len(parts) == 1
    if not parts or PART.sub("", text).strip() or not all(alone or unit for _, unit in parts):
        raise UsageError(f"{value!r} is not a duration", "write 90s, 2m or 1h30m")
    seconds = sum(float(number) * UNITS[unit or "s"] for number, unit in parts)
    if not 0 < seconds < float("inf"):
        raise UsageError(f"{value!r} is no time at all", "write 90s, 2m or 1h30m")
    return seconds


def budget(deadline_s: float, reserves: Mapping[str, float]) -> Budget:
    """Seconds left for training. Raises UsageError where nothing is left."""
    available = deadline_s - sum(reserves.values())
    if available <= 0:
        raise UsageError(
            f"the reserves take {duration(sum(reserves.values()))} of {duration(deadline_s)}: "
            "no time is left for training",
            "reserve less, or move the deadline",
        )
    return Budget(deadline_s, dict(reserves), available)


def seconds_until(by: str, now: datetime) -> float:
    """Seconds from ``now`` to the next ``06:00``, or to a time such as ``2026-03-01T06:00``.

    A time without a zone is taken to be in that of ``now``: where it has none, in the machine's, whose
    clocks may be set to summer or winter time until then. Raises UsageError where it cannot be read or
    is past.
    """
    try:
        clock = time.fromisoformat(by) if ":" in by else None  # 20260301 is a date
    except ValueError:
        clock = None
    if clock is not None:
        today = now.astimezone(clock.tzinfo) if clock.tzinfo is not None else now
        at = datetime.combine(today.date(), clock, today.tzinfo)
        # An hour that comes twice, as clocks are set back, has a second one; one that they have skipped by
        # now is tomorrow's.
        times = (at, at.replace(fold=1), at + timedelta(days=1))
        ahead_of_it = today.time() < clock.replace(tzinfo=None)
        coming = [then for then in times if ahead_of_it or is_shown(then)]
        ahead = [then.timestamp() - now.timestamp() for then in (*coming, times[-1])]
        return next((left for left in ahead if left > 0), ahead[-1])
    try:
        at = datetime.fromisoformat(by)
    except ValueError:
        raise UsageError(
            f"{by!r} is no time", "write 06:00, or 2027-03-01T06:00 with the date"
        ) from None
    at = at if at.tzinfo is not None else at.replace(tzinfo=now.tzinfo)
    try:
        left = at.timestamp() - now.timestamp()
        if left <= 0:  # an hour that comes twice
            left = at.replace(fold=1).timestamp() - now.timestamp()
    except (ValueError, OverflowError):  # the first and the last day there are
        raise UsageError(
            f"{by!r} is no time that a clock here shows", "name a nearer one"
        ) from None
    if left <= 0:
        there = now.astimezone(at.tzinfo)
        raise UsageError(f"{by} is past: it is {there:%Y-%m-%dT%H:%M} now", "name a time to come")
    return left


def is_shown(at: datetime) -> bool:
    """Whether clocks show that time: they skip an hour as they are set to summer time."""
    there = datetime.fromtimestamp(at.timestamp(), at.tzinfo)
    return (there.hour, there.minute) == (at.hour, at.minute)


def duration(seconds: float) -> str:
    """A time as ``--deadline`` takes it: ``18h``, ``1h30m``, ``45s``."""
    left = round(seconds)
    parts = []
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        # Days are told only where they are whole: "24h" is how a day's deadline is spoken of.
        if unit == "d" and (left < 2 * length or left % length):
            continue
        count, left = divmod(left, length)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"


def arithmetic(found: Budget) -> str:
    """The budget as a sum: "24h less deploy 2h less ab-test 4h: 18h"."""
    if not found.reserves:
        return f"{duration(found.deadline_s)} to the deadline"
    less = "".join(f" less {name} {duration(s)}" for name, s in found.reserves.items())
    return f"{duration(found.deadline_s)}{less}: {duration(found.available_s)}"
