"""``outpace run``."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import click

from outpace.cli.budgets import budget_of, deadline_options
from outpace.cli.options import TargetCommand, option, target_argument
from outpace.cli.progress import ProgressLine
from outpace.errors import RecipeError, UsageError
from outpace.plan.budget import arithmetic, duration
from outpace.plan.countdown import Countdown, since_boot
from outpace.records.plan import Landed, Progress

if TYPE_CHECKING:
    from outpace.records.plan import Budget


@click.command(
    "run",
    cls=TargetCommand,
    epilog="""\b
Examples:
  outpace run train.py --epochs 30
  outpace run --recipe fast.toml -m pkg.train
  outpace run --deadline 18h --reserve deploy=2h --land train.py
  outpace run --by 06:00 --schedule cosine train.py
  outpace run -- torchrun --nproc-per-node 2 train.py""",
)
@option(
    "--recipe",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The recipe (default: outpace.toml).",
)
@option("--no-recipe", is_flag=True, help="Run as it is.")
@deadline_options
@option(
    "--land",
    is_flag=True,
    help="End in time: the learning rate goes down to zero until then, and the script's own ending "
    "is done.",
)
@option(
    "--schedule",
    type=click.Choice(get_args(Landed)),
    help="How the rate goes down (default: plateau, the script's own until it falls at the end); "
    "scale: as the script has it, times a line to zero. Means --land.",
)
@option(
    "--session",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for what is noted (default: .outpace/last-run).",
)
@option("--quiet", "-q", is_flag=True, help="No progress.")
@target_argument
def command(
    words: tuple[str, ...],
    recipe: Path | None,
    no_recipe: bool,
    deadline: float | None,
    by: str | None,
    reserves: Sequence[tuple[str, float]],
    land: bool,
    schedule: Landed | None,
    session: Path | None,
    quiet: bool,
) -> int:
    """Run a training under a recipe, its script unchanged; its exit code is the script's own.

    With a deadline it is told when it will end; with --land it ends in time. The exit code is 3
    where it ended well, but too late.
    """
    began = since_boot()
    from outpace.adapters.target import parse_target

    if recipe is not None and no_recipe:
        raise UsageError("--recipe and --no-recipe exclude each other", "give one of them")
    available = budget_of(deadline, by, reserves)
    until = countdown(available, by, began) if available is not None else None
    if available is None and (land or schedule):
        raise UsageError("there is nothing to land for", "say --deadline 18h or --by 06:00")
    from outpace.api.running import DEFAULT_RECIPE, tune_into

    target = parse_target(words)
    chosen = None if no_recipe else recipe or DEFAULT_RECIPE
    if chosen is not None and not chosen.exists():
        if recipe is None and available is not None:
            chosen = None
        else:
            hint = f"{tune_into(chosen, target)} makes one where a remedy pays; --no-recipe runs without"
            raise RecipeError(f"there is no recipe {str(chosen)!r}", hint)
    from outpace.api import run

    if available is None:
        return run(target, recipe=chosen, session=session)
    if available.reserves and not quiet:
        click.echo(f"outpace: {arithmetic(available)}", err=True)
    with ProgressLine(quiet=quiet) as line:
        return run(
            target,
            recipe=chosen,
            session=session,
            deadline=until,
            land=schedule or ("plateau" if land else None),
            on_progress=Told(line),
            reserved_s=sum(available.reserves.values()),
        )


def countdown(available: Budget, by: str | None, began: float) -> Countdown:
    """Of the time for training: by the calendar's clock where a time of day was given."""
    if by is not None:
        return Countdown(began, at=time.time() + available.available_s)
    return Countdown(began, seconds=available.available_s)


class Told:
    """Shows progress: a line at the bottom of a terminal, else one each tenth of the time."""

    def __init__(self, line: ProgressLine) -> None:
        self.line = line
        self.tenths = 0

    def __call__(self, told: Progress) -> None:
        """Show how far the training is."""
        budget = max(told.elapsed_s, told.elapsed_s + told.left_s)
        text = said(told)
        if self.line.terminal:
            phase = "landing" if told.landing else "training"
            self.line(phase, told.elapsed_s, budget, text)
        elif not self.line.quiet and (tenths := int(10 * told.elapsed_s / budget)) > self.tenths:
            self.tenths = tenths
            print(f"outpace: {text}", file=sys.stderr, flush=True)


def said(told: Progress) -> str:
    """``step 120 of 400 · loss 0.51 · ends in 2m (1m50s to 2m10s) · 30s ahead``."""
    parts = [f"step {told.steps:,}" + (f" of {told.of:,}" if told.of is not None else "")]
    if told.loss is not None:
        parts.append(f"loss {told.loss:.4g}")
    if told.landing:
        parts.append(f"lands in {duration(max(0.0, told.left_s))}")
    elif told.finish_s is not None:
        found = told.finish_s
        parts.append(
            f"ends in {duration(found.estimate)} ({duration(found.low)} to {duration(found.high)})"
        )
        ahead = told.left_s - found.estimate
        parts.append(f"{duration(abs(ahead))} {'ahead' if ahead >= 0 else 'behind'}")
    return " · ".join(parts)
