"""How an error is told: what happened, and what to do next, in two lines on stderr."""

from __future__ import annotations

import logging
import os

import click

from outpace.errors import OutpaceError


def colors() -> bool | None:
    """False where the user wants none, else None: as the stream allows."""
    return False if os.environ.get("NO_COLOR") else None


def tell(message: str, hint: str | None = None) -> None:
    """An error and what to do, on stderr."""
    _line("error", "red", message)
    if hint:
        _line("hint", "cyan", hint)


def _line(head: str, color: str, text: str) -> None:
    click.echo(click.style(head, fg=color, bold=True) + f": {text}", err=True, color=colors())


def tell_error(error: OutpaceError) -> int:
    """A mistake that the user can mend; its exit code."""
    if logging.getLogger("outpace").isEnabledFor(logging.DEBUG):
        import traceback

        traceback.print_exception(error)
    tell(error.message, error.hint)
    return error.exit_code


def tell_mistake(error: Exception) -> int:
    """A mistake of ours: its traceback stays; the exit code."""
    import traceback
    from importlib.metadata import PackageNotFoundError, version

    try:
        ours = version("outpace")
    except PackageNotFoundError:
        ours = "(not installed)"
    traceback.print_exception(error)
    tell(f"this is a mistake in outpace {ours}", "please report it with the lines above")
    return 2


def leave_quietly() -> None:
    """The reader of our output went away: say no more, and be quiet at the end too."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
