"""``outpace train``."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import inspect
import os
import shutil
import signal
import sys
import traceback
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from outpace.adapters.folder import SPEC, claimed
from outpace.adapters.target import MODULE, module_of
from outpace.cli.options import Duration, mark_latest, option, session_folder
from outpace.cli.stdout import echo_json, kept_clear
from outpace.errors import (
    Interrupted,
    OutpaceError,
    SessionError,
    TargetError,
    TargetFailed,
    UsageError,
)
from outpace.records.counted import counted
from outpace.records.files import write_json

if TYPE_CHECKING:
    from outpace.records.training import Training
    from outpace.train.result import Result
    from outpace.train.trainer import Trainer

CALLS_THE_USERS = ("outpace.train.objective", "outpace.train.loop", "outpace.train.data")
"""where a model, a loss, a metric and data are called, all of which may be a library's"""


@click.command(
    "train",
    epilog="""\b
Examples:
  outpace train train:trainer
  outpace train --budget 2h pkg.train:make
  outpace train --json train:trainer > result.json""",
)
@option("--budget", type=Duration(), help="Time that training may take, such as 2h.")
@option(
    "--session",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for what came of it (default: .outpace/DATE-TIME-NAME).",
)
@option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
@option("--quiet", "-q", is_flag=True, help="No progress.")
@click.argument("name", metavar="MODULE:FUNCTION")
def command(
    name: str, budget: float | None, session: Path | None, as_json: bool, quiet: bool
) -> int:
    """Train what a function's outpace.Trainer says; print what came of it.

    The exit code is 3 where a target was asked for and not reached.
    """
    if session is not None:
        claimed(session)  # a mistake is told before anything is trained
    home = Path.cwd()
    with kept_clear(as_json), own_mistakes(name), told_to_end():
        trainer = trainer_of(name)
        if budget is not None:
            trainer.budget_s = budget
        result = trainer.fit(quiet=quiet)
        os.chdir(home)  # the user's code may have gone elsewhere
    from outpace.train import ranks
    from outpace.train.checkpoint import BEST

    if ranks.leads():  # for all that train together
        record = dataclasses.replace(result, what=name).session
        # First, as nobody may be there any more to read what is printed.
        folder = kept(record, session, result.weights if trainer.checkpoint is None else None)
        if as_json:
            echo_json(record)
        else:
            click.echo("\n".join(lines(result)))
        if folder is not None and not quiet:
            from outpace.report.training import next_steps

            if trainer.checkpoint is None:
                click.echo(f"outpace: the best weights: {folder / BEST}", err=True)
            for step in next_steps(folder):
                click.echo(f"outpace: {step.why}: {step.command}", err=True)
    missed = result.target is not None and result.time_to_target_s is None
    return 3 if missed else 0


def kept(
    record: Training, session: Path | None, weights: dict[str, Any] | None = None
) -> Path | None:
    """The folder that it is written to, with ``weights`` that are nowhere else; None where that fails, which
    is told: the result is printed.
    """
    try:
        folder = session_folder(session, record.what.replace(".", "-"))
    except SessionError as error:
        click.echo(f"outpace: {error.message}", err=True)
        return None
    try:
        claimed(folder)
        write_json(folder / SPEC.format(mode="train"), {"mode": "train", "what": record.what})
        write_json(folder / "session.json", record)
    except (OSError, SessionError) as error:
        why = error.message if isinstance(error, SessionError) else error.strerror or error
        click.echo(f"outpace: the session cannot be kept in {folder}: {why}", err=True)
        if session is None:
            shutil.rmtree(folder, ignore_errors=True)  # it was made just now
        return None
    mark_latest(folder)
    if weights is not None:
        from outpace.plan.safety import write
        from outpace.train.checkpoint import BEST

        try:
            write(folder / BEST, weights)
        except OSError as error:
            click.echo(f"outpace: the weights cannot be kept in {folder}: {error}", err=True)
    return folder


@contextlib.contextmanager
def told_to_end() -> Iterator[None]:
    """A rank that torchrun ends, as another one has failed, comes to print its document."""

    def end(*_: object) -> None:
        raise Interrupted("this rank was ended from outside, as where another one fails")

    if "RANK" not in os.environ:
        yield
        return
    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def own_mistakes(name: str) -> Iterator[None]:
    """What the user's code raises keeps its traceback, and is not taken for a mistake of ours."""
    try:
        yield
    except OutpaceError:
        raise
    except SystemExit as end:
        raise TargetFailed(
            f"{name} ended the program, with exit code {end.code or 0}",
            "keep what only a script does below: if __name__ == '__main__':",
        ) from None
    except Exception as error:
        if not is_users(error):
            raise
        traceback.print_exception(error)
        raise TargetFailed(f"{name} raised {type(error).__name__}") from None


def is_users(error: Exception) -> bool:
    """Whether the innermost code that is no library's is the user's, or calls what the user has given."""
    from outpace.seams.where import is_user_file

    if isinstance(error, SyntaxError):
        return is_user_file(error.filename or "")
    inside = False
    for frame, _ in reversed(list(traceback.walk_tb(error.__traceback__))):
        if is_user_file(frame.f_code.co_filename):
            return True
        name = str(frame.f_globals.get("__name__", ""))
        if name.startswith("outpace."):
            return inside and name in CALLS_THE_USERS
        inside = True
    return False


def trainer_of(name: str) -> Trainer:
    """What ``module:function`` gives, looked for from the working folder as well."""
    from outpace.train.trainer import Trainer

    module, colon, function = name.partition(":")
    if not colon or not module or not function:
        raise UsageError(f"{name!r} names no function", "write module:function")
    if module.endswith(".py") or not MODULE.match(module):
        hint = f"as Python imports it: {module_of(module)}:{function}"
        raise UsageError(f"{module!r} is no module's name", hint)
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found = getattr(importlib.import_module(module), function, None)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise
        hint = f"looked in {os.getcwd()} and where Python does"
        raise TargetError(f"there is no module {module}", hint) from None
    if found is None:
        raise TargetError(f"{module} has no {function}", "name a function in it")
    if isinstance(found, Trainer):
        return found
    if not (inspect.isroutine(found) or inspect.isclass(found) or isinstance(found, partial)):
        kind = type(found).__name__
        raise TargetError(
            f"{name} is a {kind}", "name an outpace.Trainer, or a function that gives one"
        )
    try:
        inspect.signature(found).bind()
    except TypeError as error:
        raise TargetError(f"{name} cannot be called: {error}", "let it take no argument") from None
    made = found()
    if not isinstance(made, Trainer):
        kind = type(made).__name__
        raise TargetError(f"{name} gives a {kind}", "it is to return an outpace.Trainer")
    return made


def lines(result: Result) -> list[str]:
    """The result in a few lines."""
    from outpace.report import words

    steps, epochs = counted(result.steps, "step"), counted(result.epochs, "epoch")
    amount = f"{steps}, {epochs} in {words.seconds(result.seconds)}"
    told = [f"ended by {result.stopped}: {amount}"]
    if result.best is not None and result.metric is not None:
        told.append(
            f"best: {result.metric:.4g} after {words.seconds(result.best.seconds)} "
            f"(step {result.best.step:,}, epoch {result.best.epoch})"
        )
    if result.time_to_target_s is not None:
        told.append(f"target reached after {words.seconds(result.time_to_target_s)}")
    return [*told, *(f"- {note}" for note in result.notes)]
