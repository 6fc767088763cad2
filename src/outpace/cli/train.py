"""``outpace train``."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from typing import TYPE_CHECKING

import click

from outpace.cli.options import Duration, option
from outpace.errors import TargetError, UsageError

if TYPE_CHECKING:
    from outpace.train.result import Result
    from outpace.train.trainer import Trainer


@click.command(
    "train",
    epilog="""\b
Examples:
  outpace train train:trainer
  outpace train --budget 2h pkg.train:make
  outpace train --json train:trainer > result.json""",
)
@option("--budget", type=Duration(), help="Time that training may take, such as 2h.")
@option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
@option("--quiet", "-q", is_flag=True, help="No progress.")
@click.argument("name", metavar="MODULE:FUNCTION")
def command(name: str, budget: float | None, as_json: bool, quiet: bool) -> int:
    """Train what a function's outpace.Trainer says; print what came of it.

    The exit code is 3 where a target was asked for and not reached.
    """
    # What the function and its callbacks print is not to be in the document.
    with contextlib.redirect_stdout(sys.stderr if as_json else sys.stdout):
        trainer = trainer_of(name)
        if budget is not None:
            trainer.budget_s = budget
        result = trainer.fit(quiet=quiet)
    if as_json:
        from outpace.records.files import to_json

        click.echo(to_json(result.told()))
    else:
        for line in lines(result):
            click.echo(line)
    missed = trainer.target is not None and result.time_to_target_s is None
    return 3 if missed else 0


def trainer_of(name: str) -> Trainer:
    """What ``module:function`` gives, looked for from the working folder as well."""
    from outpace.train.trainer import Trainer

    module, colon, function = name.partition(":")
    if not colon or not module or not function:
        raise UsageError(f"{name!r} names no function", "write module:function")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found = getattr(importlib.import_module(module), function, None)
    except ModuleNotFoundError as error:
        if error.name is None or not module.startswith(error.name):
            raise
        hint = f"looked in {os.getcwd()} and where Python does"
        raise TargetError(f"there is no module {module}", hint) from None
    if found is None:
        raise TargetError(f"{module} has no {function}", "name a function in it")
    made = found if isinstance(found, Trainer) else found()
    if not isinstance(made, Trainer):
        kind = type(made).__name__
        raise TargetError(f"{name} gives a {kind}", "it is to return an outpace.Trainer")
    return made


def lines(result: Result) -> list[str]:
    """The result in a few lines."""
    from outpace.plan.budget import duration

    amount = f"{result.steps:,} steps, {result.epochs} epochs in {duration(result.seconds)}"
    told = [f"ended by {result.stopped}: {amount}"]
    if result.best is not None and result.metric is not None:
        told.append(
            f"best: {result.metric:.4g} after {duration(result.best.seconds)} "
            f"(step {result.best.step:,}, epoch {result.best.epoch})"
        )
    if result.time_to_target_s is not None:
        told.append(f"target reached after {duration(result.time_to_target_s)}")
    return [*told, *(f"- {note}" for note in result.notes)]
