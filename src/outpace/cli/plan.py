"""``outpace plan``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from outpace.cli.options import Duration, option
from outpace.errors import UsageError

SCALES = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9, "t": 1e12}
NUMBER = re.compile(r"(\d+(?:\.\d+)?(?:e[+-]?\d+)?)\s*([kmbt]?)")
LAWS = ("besiroglu", "hoffmann-1", "hoffmann-2", "hoffmann-3")


class Count(click.ParamType[float]):
    """A number such as ``70B``, ``1.4T``, ``350M`` or ``5.76e23``."""

    name = "count"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The number; fails with what was seen and what is understood."""
        found = NUMBER.fullmatch(str(value).strip().lower())
        if found is None:
            self.fail(f"{value!r} is not a count; write 70B, 1.4T or 5.76e23", param, ctx)
        return float(found[1]) * SCALES[found[2]]


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


@click.command(
    "plan",
    epilog="""\b
Examples:
  outpace plan --deadline 24h --reserve deploy=2h --reserve ab-test=4h
  outpace plan --flops 5.76e23
  outpace plan --params 70B --tokens 1.4T --law hoffmann-3
  outpace plan --fit runs.csv --flops 1e21
  outpace plan --device h100 --count 64 --mfu 0.4 --deadline 24h --reserve deploy=6h
  outpace plan --device h100 --count 64 --params 7B --tokens 140B --deadline 3d""",
)
@option("--deadline", type=Duration(), help="Time until the model is wanted, such as 24h.")
@option("--by", help="When it is wanted: 06:00, or 2026-03-01T06:00.")
@option(
    "--reserve",
    "reserves",
    type=Reserve(),
    multiple=True,
    help="Time for something other than training, such as deploy=2h; may be repeated.",
)
@option("--flops", type=Count(), help="A compute budget, such as 5.76e23.")
@option("--params", type=Count(), help="Parameters of a model, such as 70B.")
@option("--tokens", type=Count(), help="Tokens that it is trained on, such as 1.4T.")
@option("--unique-tokens", type=Count(), help="Tokens there are, where they are seen again.")
@option("--served-tokens", type=Count(), help="Tokens that the model will serve in its life.")
@option("--device", help="An accelerator, such as h100; its rate and price are looked up.")
@option("--count", type=click.IntRange(min=1), default=1, help="So many of it (default: 1).")
@option("--hours", type=click.FloatRange(min=0, min_open=True), help="Hours of training.")
@option(
    "--mfu",
    type=click.FloatRange(min=0, max=1, min_open=True),
    default=0.4,
    help="Share of the device's dense peak that is reached (default: 0.4).",
)
@option("--dtype", default="bf16", help="Format of the products: fp32, tf32, bf16, fp16, fp8.")
@option("--law", type=click.Choice(LAWS), default=LAWS[0], help="Scaling law (default: besiroglu).")
@option(
    "--fit",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Fit the law to runs: CSV with parameters, tokens and loss.",
)
@option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def command(
    reserves: Sequence[tuple[str, float]], by: str | None, as_json: bool, **given: Any
) -> int:
    """What fits a deadline: time, compute, and the model and data that suit it.

    The exit code is 3 where the training that was asked about does not fit.
    """
    from outpace.plan.question import Question, answer
    from outpace.records.files import to_json

    if by is not None:
        if given["deadline"] is not None:
            raise UsageError("--deadline and --by both say when the time is up", "give one of them")
        from outpace.plan.budget import seconds_until

        given["deadline"] = seconds_until(by, datetime.now().astimezone())
    names = [name for name, _ in reserves]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"{name} is reserved twice", "name each reserve once")
    plan, lines = answer(Question(reserves=dict(reserves), **given))
    if as_json:
        click.echo(to_json(plan))
    else:
        for line in lines:
            click.echo(line)
    return 0 if not plan.forecast or plan.forecast.fits else 3
