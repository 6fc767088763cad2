"""``outpace plan``."""

from __future__ import annotations

import math
import re
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, get_args

import click
import msgspec

from outpace.cli.budgets import budget_of, deadline_options, later
from outpace.cli.options import (
    Duration,
    Number,
    TargetCommand,
    from_settings,
    mark_latest,
    on_command_line,
    option,
    session_folder,
    target_argument,
)
from outpace.cli.stdout import echo_json
from outpace.errors import Interrupted, SessionError, TargetError, TargetFailed, UsageError
from outpace.plan.forecast import Objective
from outpace.records.machine import Machine
from outpace.records.plan import Sizes
from outpace.records.session import Session, read_session
from outpace.records.target import Target

SCALES = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9, "t": 1e12}
NUMBER = re.compile(r"(\d+(?:\.\d+)?(?:e[+-]?\d+)?)\s*([kmbt]?)")
AMOUNT = re.compile(r"\$?\s*(\d+(?:\.\d+)?)\s*(?:usd|\$)?")
PAGES = (".html", ".htm")
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
        number = float(found[1]) * SCALES[found[2]]
        if not math.isfinite(number):
            self.fail(f"{value!r} is more than can be reckoned with", param, ctx)
        return number


class Money(click.ParamType[float]):
    """USD, such as ``200usd``, ``$200`` or ``200``."""

    name = "usd"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The amount; fails with what was seen and what is understood."""
        found = AMOUNT.fullmatch(str(value).strip().lower())
        if found is None or float(found[1]) <= 0:
            self.fail(f"{value!r} is no amount of money; write 200usd", param, ctx)
        return float(found[1])


@click.command(
    "plan",
    cls=TargetCommand,
    epilog="""\b
Examples:
  outpace plan --deadline 24h --reserve deploy=2h --reserve ab-test=4h
  outpace plan --deadline 18h --epochs 90 train.py
  outpace plan --by 06:00 .outpace/latest
  outpace plan --epochs 30 --usd-per-hour 2.5 --cost 200usd --objective cost train.py
  outpace plan --memory --device l4 --batch 64 train.py
  outpace plan --flops 5.76e23
  outpace plan --params 70B --tokens 1.4T --law hoffmann-3
  outpace plan --fit runs.csv --flops 1e21
  outpace plan --device h100 --count 64 --mfu 0.4 --deadline 24h --reserve deploy=6h
  outpace plan --device h100 --count 64 --params 7B --tokens 140B --deadline 3d""",
)
@deadline_options
@option("--flops", type=Count(), help="A compute budget, such as 5.76e23.")
@option("--params", type=Count(), help="Parameters of a model, such as 70B.")
@option("--tokens", type=Count(), help="Tokens that it is trained on, such as 1.4T.")
@option(
    "--unique-tokens",
    type=Count(),
    help="Different tokens that the data have, where they are seen again.",
)
@option("--served-tokens", type=Count(), help="Tokens that the model will serve in its life.")
@option("--device", help="An accelerator, such as h100; its rate and price are looked up.")
@option(
    "--count",
    type=click.IntRange(min=1),
    default=1,
    help="How many accelerators, or machines like this one (default: 1).",
)
@option("--hours", type=Number(min=0, min_open=True), help="Hours of training.")
@option(
    "--mfu",
    type=Number(min=0, max=1, min_open=True),
    default=0.4,
    help="Share of the device's peak that you expect to reach (default: 0.4); without a script only.",
)
@option(
    "--dtype",
    default="bf16",
    help="Format of the products: fp32, tf32, bf16, fp16, fp8 (default: bf16); without a script only.",
)
@option(
    "--law",
    type=click.Choice(LAWS),
    default=LAWS[0],
    help="Scaling law (default: besiroglu); without a script only.",
)
@option(
    "--fit",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Fit the law to runs: CSV with parameters, tokens and loss.",
)
@option(
    "--steps",
    command="plan",
    type=click.IntRange(min=1),
    help="Length of the training in steps, where it is not found.",
)
@option("--epochs", type=click.IntRange(min=1), help="Or in epochs; before the script's name.")
@option("--samples", type=click.IntRange(min=1), help="Or in samples.")
@option(
    "--time",
    "time_s",
    type=Duration(),
    help="Time to measure the script, from its first step on (default: 500 of its steps, 60 s to 240 s).",
)
@option(
    "--memory", is_flag=True, help="The memory of a script's step, and what would make room in it."
)
@option(
    "--batch",
    type=click.IntRange(min=1),
    help="With --memory: samples of a batch (default: its own).",
)
@option("--cost", type=Money(), help="Money that it may cost, such as 200usd.")
@option(
    "--objective",
    type=click.Choice(get_args(Objective)),
    default="time",
    help="What comes first: the soonest (default), the cheapest, or most training in the time.",
)
@option(
    "--usd-per-hour",
    type=Number(min=0),
    help="USD for an hour of this machine; without a script, of one --device.",
)
@option(
    "--output",
    "-o",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the answer and its charts as well: .html.",
)
@option("--force", is_flag=True, help="Replace a file of other origin that is in the way.")
@option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
@option("--quiet", "-q", is_flag=True, help="No progress.")
@target_argument
def command(
    words: tuple[str, ...],
    deadline: float | None,
    by: str | None,
    reserves: Sequence[tuple[str, float]],
    time_s: float | None,
    usd_per_hour: float | None,
    output: Path | None,
    force: bool,
    as_json: bool,
    quiet: bool,
    **given: Any,
) -> int:
    """When a training will end, whether that fits, and what would end it sooner.

    With a script: it is run for one to four minutes as `outpace diagnose` runs it, its results thrown away;
    with the folder of a session: by what was measured in it.
    Without one: what a compute budget can train, by a scaling law. The exit code is 3 where the training that
    was asked about does not fit the time, the money, or the device.
    """
    from outpace.adapters.target import parse_target
    from outpace.plan.question import Question, answer, of_memory
    from outpace.report import plan as report

    ctx = click.get_current_context()
    unread = set_for_other_questions(ctx, script=bool(words))
    given = {name: None if name in unread else value for name, value in given.items()}
    given["memory"] = bool(given["memory"])
    given["objective"] = given["objective"] or "time"
    usd_per_hour = None if "usd_per_hour" in unread else usd_per_hour
    if "deadline" in unread or "by" in unread:
        deadline, by = (None if name in unread else ctx.params[name] for name in ("deadline", "by"))
        reserves = () if from_settings(ctx, "reserves") else reserves
    available = budget_of(deadline, by, reserves)
    wanted_at = time.time() + (available.deadline_s if available is not None else 0.0)
    named = ("count", "mfu", "dtype", "law", "objective", "usd_per_hour", "time_s", "by")
    flags = frozenset(name.removesuffix("_s") for name in named if on_command_line(ctx, name))
    asked = Question(time=available, usd_per_hour=usd_per_hour, said=flags, **given)
    if asked.memory and not words:
        raise UsageError("--memory needs a script", "outpace plan --memory train.py")
    if asked.batch is not None and not asked.memory:
        raise UsageError("--batch is heeded with --memory alone", "say --memory as well")
    if words:
        asked.check_script()
    if output is not None:
        from outpace.cli.measuring import check_report

        check_report(output, force, PAGES)
    law, earlier = None, None
    if asked.memory:
        target = parse_target(words)
        here = asked.device is None
        plan = of_memory(asked, *measured_sizes(target, asked.batch, here, as_json, quiet))
        lines = report.memory_lines(plan, target.name)
    elif words:
        earlier = measured_before(words)
        if earlier is not None and time_s is not None and on_command_line(ctx, "time_s"):
            raise UsageError("--time needs a script", f"{words[0]} was measured already")
        session = earlier or measure(parse_target(words), time_s, as_json, quiet)
        check_measured(session, earlier=words[0] if earlier is not None else None)
        if by is not None and available is not None:  # the clock has gone on meanwhile
            asked = replace(asked, time=later(available, wanted_at))
        plan, _ = answer(asked, session)
        lines = report.script_lines(asked, plan, session.target.name)
    else:
        plan, law = answer(asked)
        assert law is not None
        lines = report.lines(asked, plan, law)
    said = list(lines)
    if not as_json:
        for line in said:
            click.echo(line, err=bool(words) and earlier is None)  # stdout is the script's alone
    if output is not None:
        from outpace.report import written
        from outpace.report.plan_html import render_plan

        sys.stdout.flush()
        written(output, render_plan(asked, plan, law, said))
        click.echo(f"wrote {output}", err=True)
    if as_json:  # last: what is on stdout by then stands beside no error
        echo_json(plan)
    late = plan.forecast and not plan.forecast.fits
    full = plan.memory and plan.memory.fits is False
    return 3 if late or full else 0


def set_for_other_questions(ctx: click.Context, *, script: bool) -> set[str]:
    """Names of what a project's settings say and this question has no use for."""
    from outpace.plan import question

    asked = ctx.params
    memory = asked["memory"]
    if memory and from_settings(ctx, "memory"):
        others = (*question.NOT_OF_MEMORY, *question.OF_A_SCRIPT)
        of_time = any(on_command_line(ctx, name) for name in others)
        memory = script and not of_time
    unread = set() if memory else {"memory", "batch"}
    if memory:
        unread |= {*question.NOT_OF_A_SCRIPT, *question.OF_A_SCRIPT, *question.NOT_OF_MEMORY}
    elif script:
        unread |= set(question.NOT_OF_A_SCRIPT)
        priced = asked["usd_per_hour"] is not None
        timed = asked["deadline"] is not None or asked["by"] is not None
        useless = {"time": False, "cost": not priced, "scale": not timed}
        unread |= set() if priced else {"cost"}
        unread |= {"objective"} if useless[asked["objective"]] else set()
    else:
        unread |= set(question.OF_A_SCRIPT)
        # In the settings it is the price of this machine.
        unread |= set() if from_settings(ctx, "device") else {"usd_per_hour"}
        known = asked["flops"] is not None or asked["params"] is not None
        if asked["device"] is None:
            unread |= {"hours", "cost", *(("deadline", "by") if known else ())}
            unread |= set() if known else {"served_tokens"}
        unread |= {"unique_tokens"} if asked["tokens"] is None else set()
        unread |= {"fit"} if on_command_line(ctx, "law") else set()
        worked = any(asked[name] is not None for name in ("hours", "deadline", "by", "cost"))
        if asked["fit"] is not None and "fit" not in unread and not (known or worked):
            unread |= {"device"}
    return {name for name in unread if from_settings(ctx, name)}


def measured_sizes(
    target: Target, batch: int | None, here: bool, as_json: bool, quiet: bool
) -> tuple[Sizes, Machine]:
    """A script's step, and the machine; ``here``: it is this machine's memory that is asked about."""
    from outpace.api import sizes
    from outpace.cli.measuring import kept
    from outpace.measure.ceilings import MEASURING, ceilings
    from outpace.measure.machine import describe

    folder = session_folder(None, target.name)
    output: Literal["stderr", "inherit"] = "stderr" if as_json else "inherit"
    with kept(folder, quiet=quiet) as progress:
        found = sizes(
            target,
            session=folder,
            batch=batch,
            tries=here,
            output=output,
            progress=progress,
        )
        machine = describe()
        top = ceilings(machine, lambda: progress(MEASURING, 0, 1))
        return found, msgspec.structs.replace(machine, ceilings=top)


def measure(target: Target, time_s: float | None, as_json: bool, quiet: bool) -> Session:
    """A short diagnosis of the script."""
    from outpace.api import diagnose
    from outpace.cli.measuring import kept

    folder = session_folder(None, target.name)
    output: Literal["stderr", "inherit"] = "stderr" if as_json else "inherit"
    with kept(folder, quiet=quiet) as progress:
        session = diagnose(
            target,
            session=folder,
            time_s=time_s,
            output=output,
            progress=progress,
            changes=True,
        )
    mark_latest(folder)
    return session


def measured_before(words: Sequence[str]) -> Session | None:
    """The session whose folder is named in the place of a script. Raises SessionError for one of `train`."""
    if not Path(words[0], "session.json").is_file():
        return None
    if len(words) > 1:
        raise UsageError(
            f"{' '.join(words[1:])} came after the folder {words[0]}", "options stand before it"
        )
    session = read_session(Path(words[0], "session.json"))
    if not isinstance(session, Session):
        raise SessionError(
            f"{words[0]} is a training's, whose steps were not measured", "name its script instead"
        )
    return session


def check_measured(session: Session, *, earlier: str | None) -> None:
    """Raises TargetFailed, with its exit code, where the script came to no good. ``earlier``: the folder of a
    session that was not measured now.
    """
    if session.outcome != "done":
        if session.outcome == "interrupted" and earlier is not None:
            raise SessionError(
                f"{earlier} was cut short before all was measured", "name its script instead"
            )
        if session.outcome == "interrupted":
            raise Interrupted(
                "interrupted", "what was measured by then: outpace report .outpace/latest"
            )
        raise TargetFailed(
            f"{session.target.name}: {session.outcome}",
            "`outpace diagnose` tells more of it",
            exit_code=session.exit_code or TargetError.exit_code,
        )
