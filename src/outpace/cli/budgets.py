"""Options that say how much time there is, and what is made of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

import click

from outpace.cli.options import Duration, option
from outpace.errors import UsageError
from outpace.plan.budget import budget, seconds_until
from outpace.records.plan import Budget

Command = Callable[..., Any]


class Reserve(click.ParamType[tuple[str, float]]):
    """A name and a duration, such as ``deploy=2h``."""

    name = "name=duration"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, float]:
        """Name and seconds; fails with what was seen and what is understood."""
        if isinstance(value, tuple):
            return value
        name, equals, seconds = str(value).partition("=")
        if not name or not equals:
            self.fail(f"{value!r} names nothing; write deploy=2h", param, ctx)
        return name, Duration().convert(seconds, param, ctx)


def deadline_options(function: Command) -> Command:
    """``--deadline``, ``--by`` and ``--reserve``."""
    for add in (
        option(
            "--reserve",
            "reserves",
            type=Reserve(),
            multiple=True,
            help="Time for something other than training, such as deploy=2h; may be repeated.",
        ),
        option("--by", help="When it is wanted: 06:00, or with the date: 2027-03-01T06:00."),
        option("--deadline", type=Duration(), help="Time until the model is wanted, such as 24h."),
    ):
        function = add(function)
    return function


def budget_of(
    deadline: float | None, by: str | None, reserves: Sequence[tuple[str, float]]
) -> Budget | None:
    """The time for training; None where no deadline was given. Raises UsageError."""
    names = [name for name, _ in reserves]
    if doubled := [name for name in names if names.count(name) > 1]:
        raise UsageError(f"{doubled[0]} is reserved twice", "name each reserve once")
    if by is not None and deadline is not None:
        raise UsageError("--deadline and --by both say when the time is up", "give one of them")
    if by is not None:
        deadline = seconds_until(by, datetime.now())
    if deadline is None:
        if reserves:
            raise UsageError(
                "--reserve needs a time to take it from", "say --deadline 24h or --by 06:00"
            )
        return None
    return budget(deadline, dict(reserves))


def later(found: Budget, at: float) -> Budget:
    """What is left of it by now, if anything; it is wanted ``at`` so many seconds since the epoch."""
    left = max(0.0, at - time.time())
    return Budget(left, found.reserves, max(0.0, left - sum(found.reserves.values())))
