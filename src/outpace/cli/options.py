"""Options that several commands share, and how a command line is parted from its target's."""

from __future__ import annotations

import contextlib
import math
import os
import re
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar

import click
from click.core import ParameterSource

from outpace.adapters.folder import not_made
from outpace.errors import UsageError
from outpace.plan.budget import seconds_of

Command = Callable[..., Any]

RIVALS = (
    ("deadline", "by"),
    ("recipe", "no_recipe"),
    ("steps", "epochs"),
    ("steps", "samples"),
    ("epochs", "samples"),
    ("flops", "params"),
    ("flops", "tokens"),
)
"""parameters of which a command line names one"""
SOURCES = (ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT, ParameterSource.DEFAULT_MAP)


class Duration(click.ParamType[float]):
    """A time such as ``90``, ``45s``, ``2m`` or ``1h30m``, in seconds."""

    name = "duration"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Seconds; fails with what was seen and what is understood."""
        try:
            return seconds_of(value)
        except UsageError as error:
            self.fail(f"{error.message}; {error.hint}", param, ctx)


class Number(click.FloatRange):
    """A number within limits; "nan" and "inf", which Click lets through, are none."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The number; fails with what was seen."""
        found = float(super().convert(value, param, ctx))
        if not math.isfinite(found):
            self.fail(f"{value!r} is no number", param, ctx)
        return found


class Bytes(click.ParamType[int]):
    """A size such as ``500M``, ``8GiB`` or ``1.5TB``, in bytes."""

    name = "size"
    UNITS: ClassVar = {"k": 1, "m": 2, "g": 3, "t": 4}
    PATTERN = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt])(i?b?)", re.IGNORECASE)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Bytes; fails with what was seen and what is understood."""
        found = self.PATTERN.fullmatch(str(value).strip())
        if found is None:
            self.fail(f"{value!r} is no size; write 500M, 8G or 1.5T", param, ctx)
        number, unit, kind = found.groups()
        base = 1000 if kind.lower() == "b" else 1024
        size = int(float(number) * base ** self.UNITS[unit.lower()])
        if size < 2**20:
            self.fail(f"{value!r} is less than 1 MiB, which keeps nothing", param, ctx)
        return size


class TargetCommand(click.Command):
    """A command with a target: what comes after the target's first word belongs to the target.

    Also after ``-m``, where Click would go on to look for options of ours.
    """

    allow_interspersed_args = False

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Have Click see the target's words as words."""
        at = self.target_at(args)
        dashes = [] if args[at : at + 1] in (["--"], []) else ["--"]
        left = super().parse_args(ctx, [*args[:at], *dashes, *args[at:]])
        _let_stronger_rivals_win(ctx)
        _drop_what_lacks_its_deadline(ctx)
        return left

    def target_at(self, args: list[str]) -> int:
        """Where the target begins: at ``-m``, at ``--``, or at the first word."""
        options = [p for p in self.params if isinstance(p, click.Option)]
        valued = {name for p in options if not p.is_flag for name in (*p.opts, *p.secondary_opts)}
        at = 0
        while at < len(args):
            word = args[at]
            if word in ("--", "-m", "-") or not word.startswith("-"):
                return at
            at += 2 if word in valued or _ends_valued(word, valued) else 1
        return len(args)


def _let_stronger_rivals_win(ctx: click.Context) -> None:
    """``--by`` takes the place of pyproject.toml's ``deadline``; told in one place, both stay."""
    for pair in RIVALS:
        ranks = {
            name: SOURCES.index(source)
            for name in pair
            if ctx.params.get(name) and (source := ctx.get_parameter_source(name)) in SOURCES
        }
        if len(ranks) == 2 and len(set(ranks.values())) == 2:
            weaker = max(ranks, key=lambda name: ranks[name])
            ctx.params[weaker] = None if weaker != "no_recipe" else False


def _drop_what_lacks_its_deadline(ctx: click.Context) -> None:
    """What a project sets for its deadlines is not for a command line without one."""
    if not any(ctx.params.get(name) for name in ("deadline", "by")):
        for name, none in (("reserves", ()), ("land", False), ("schedule", None)):
            if ctx.params.get(name) and from_settings(ctx, name):
                ctx.params[name] = none


def from_settings(ctx: click.Context, name: str) -> bool:
    """Whether a parameter was set by a variable or by pyproject.toml, and not on the command line."""
    return ctx.get_parameter_source(name) in (
        ParameterSource.ENVIRONMENT,
        ParameterSource.DEFAULT_MAP,
    )


def on_command_line(ctx: click.Context, name: str) -> bool:
    """Whether a parameter was set there."""
    return ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE


def stronger(ctx: click.Context, name: str, other: str) -> bool:
    """Whether a parameter was set in a place that counts before that of the other, which was set too."""
    places = [ctx.get_parameter_source(each) for each in (name, other)]
    ranks = [SOURCES.index(place) for place in places if place in SOURCES]
    return len(ranks) == 2 and ranks[0] < ranks[1]


def _ends_valued(word: str, valued: set[str]) -> bool:
    """Whether flags of one letter stand together, and the last one's value is the next word: ``-qo``."""
    if word.startswith("--"):
        return False
    return next((at for at, c in enumerate(word) if f"-{c}" in valued), 0) == len(word) - 1


def option(
    flag: str, *more: str, command: str = "", **settings: Any
) -> Callable[[Command], Command]:
    """An option that also the variable OUTPACE_<FLAG> sets; OUTPACE_<COMMAND>_<FLAG> where it means another
    thing to one ``command``.
    """
    name = (f"{command}_" if command else "") + flag.removeprefix("--")
    variable = "OUTPACE_" + name.replace("-", "_").upper()
    return click.option(flag, *more, envvar=variable, **settings)


def target_argument(function: Command) -> Command:
    """The target and all of its own arguments."""
    return click.argument(
        "words",
        nargs=-1,
        type=click.UNPROCESSED,
        metavar="{SCRIPT | -m MODULE | -- COMMAND} [ARGS]...",
    )(function)


def common(function: Command) -> Command:
    """Options of commands that measure."""
    for add in (
        option(
            "--from",
            "begin",
            metavar="FUNCTION|STEP",
            help="Measure the training that begins in this function of the script, or after so many "
            "steps.",
        ),
        option(
            "--allow",
            multiple=True,
            metavar="FOLDER",
            type=click.Path(path_type=Path, file_okay=False),
            help="A folder that the script writes to as ever, meanwhile (may be given several times).",
        ),
        option(
            "--session",
            type=click.Path(path_type=Path, file_okay=False),
            help="Folder for all that is measured (default: .outpace/DATE-TIME-NAME).",
        ),
        option(
            "--output",
            "-o",
            type=click.Path(path_type=Path, dir_okay=False),
            help="Write a report as well: .html, .md or .json.",
        ),
        option(
            "--force",
            is_flag=True,
            help="Replace what is in the way: files of other origin, an earlier recipe.",
        ),
        option("--json", "as_json", is_flag=True, help="One JSON document on stdout."),
        option("--quiet", "-q", is_flag=True, help="No progress."),
        option(
            "--verbose", "-v", is_flag=True, help="Tell what is started; keep tracebacks of errors."
        ),
    ):
        function = add(function)
    return function


def session_folder(given: Path | None, name: str) -> Path:
    """The folder named, or a new one in .outpace, which is made: another process may want one too."""
    if given is not None:
        return given
    stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
    stem = re.sub(r"\W+", "-", Path(name).name.removesuffix(".py")) or "target"
    folder = Path(".outpace") / f"{stamp}-{stem}"
    number = 1
    try:
        folder.parent.mkdir(exist_ok=True)
        while not _made_now(folder):
            number += 1
            folder = folder.with_name(f"{stamp}-{stem}-{number}")
    except OSError as error:
        raise not_made(folder, error) from error
    return folder


def _made_now(folder: Path) -> bool:
    with contextlib.suppress(FileExistsError):
        folder.mkdir()
        return True
    return False


def mark_latest(session: Path) -> None:
    """Have .outpace/latest lead to the newest session."""
    link = session.parent / "latest"
    if session.parent.name != ".outpace" or session == link:
        return
    # Under another name first: another session may end now. Some file systems have no links.
    with contextlib.suppress(OSError):
        if link.exists() and not link.is_symlink():
            return
        new = link.with_name(f".latest-{os.getpid()}")
        new.unlink(missing_ok=True)
        new.symlink_to(session.name)
        os.replace(new, link)
