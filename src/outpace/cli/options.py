"""Options that several commands share."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import click

UNITS = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
PART = re.compile(r"(\d+(?:\.\d+)?)\s*(s|min|m|h|d)?")


class Duration(click.ParamType[float]):
    """A time such as ``90``, ``45s``, ``2m`` or ``1h30m``, in seconds."""

    name = "duration"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Seconds; fails with what was seen and what is understood."""
        if isinstance(value, int | float):
            return float(value)
        text = str(value).strip().lower()
        parts = PART.findall(text)
        if not parts or PART.sub("", text).strip():
            self.fail(f"{value!r} is not a duration; write 90s, 2m or 1h30m", param, ctx)
        seconds = sum(float(number) * UNITS[unit or "s"] for number, unit in parts)
        if seconds <= 0:
            self.fail(f"{value!r} is no time at all", param, ctx)
        return seconds


Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

TARGET_SETTINGS = {"ignore_unknown_options": False, "allow_interspersed_args": False}


def target_argument(function: Callable[..., Any]) -> Callable[..., Any]:
    """The target and all of its own arguments."""
    module = click.option(
        "-m", "module", metavar="PKG.MODULE", help="The target is a module, as for python -m."
    )
    words = click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="TARGET [ARGS]...")
    return module(words(function))


def common(function: Callable[..., Any]) -> Callable[..., Any]:
    """Options of commands that measure."""
    for option in (
        click.option(
            "--session", type=click.Path(path_type=Path), help="Folder for all that is measured."
        ),
        click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout."),
        click.option("-q", "--quiet", is_flag=True, help="No progress."),
    ):
        function = option(function)
    return function


def session_folder(given: Path | None, name: str) -> Path:
    """The folder named, or a new one in .outpace."""
    if given is not None:
        return given
    stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
    stem = re.sub(r"\W+", "-", Path(name).stem) or "target"
    return Path(".outpace") / f"{stamp}-{stem}"


def mark_latest(session: Path) -> None:
    """Have .outpace/latest lead to the newest session."""
    link = session.parent / "latest"
    if session.parent.name != ".outpace" or (link.exists() and not link.is_symlink()):
        return
    link.unlink(missing_ok=True)
    link.symlink_to(session.name)
