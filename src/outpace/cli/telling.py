"""How an error is told: what happened, and what to do next, in two lines on stderr."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
from typing import NamedTuple

import click

from outpace.errors import Interrupted, OutpaceError

FULL = (errno.ENOSPC, errno.EDQUOT)
"""of a disk, or of what somebody may have of it"""
UNUSABLE = {
    errno.ENOSPC: "make room",
    errno.EDQUOT: "make room",
    errno.EROFS: "name one that can be written",
    errno.EACCES: "ask for access to it, or name another",
    errno.EPERM: "ask for access to it, or name another",
    errno.ENAMETOOLONG: "name a shorter one",
}
"""errors of a path that hold whoever asks for it, and what to do"""


def colors() -> bool | None:
    """False where the user wants none, else None: as the stream allows."""
    return False if os.environ.get("NO_COLOR") else None


def tell(message: str, hint: str | None = None) -> None:
    """An error and what to do, on stderr."""
    _line("error", "red", message)
    if hint:
        tell_hint(hint)


def tell_hint(hint: str) -> None:
    """What to do, on stderr."""
    _line("hint", "cyan", hint)


def _line(head: str, color: str, text: str) -> None:
    with contextlib.suppress(OSError):  # nobody reads it: the exit code says it too
        click.echo(click.style(head, fg=color, bold=True) + f": {text}", err=True, color=colors())


class Failure(NamedTuple):
    """What happened, what to do next, and the exit code."""

    message: str
    hint: str | None
    exit_code: int

    def document(self) -> dict[str, object]:
        """For programs, in the place of what the command would have given."""
        outcome = "interrupted" if self.exit_code == Interrupted.exit_code else "error"
        return {"schema": 1, "outcome": outcome, **self._asdict()}


def failure_of(error: BaseException) -> Failure:
    """An exception in words; the traceback of a mistake of ours is shown."""
    if isinstance(error, OutpaceError):
        _trace_if_wanted(error)
        return Failure(error.message, error.hint, error.exit_code)
    if isinstance(error, click.ClickException):
        context = error.ctx if isinstance(error, click.UsageError) else None
        hint = f"{context.command_path} --help" if context is not None else None
        return Failure(error.format_message(), hint, 2)
    if isinstance(error, click.Abort | KeyboardInterrupt):
        return Failure("interrupted", None, Interrupted.exit_code)
    if isinstance(error, OSError) and error.errno in FULL and error.filename is None:
        leave_quietly()  # what is not written yet would fail once more at the end
        return Failure(f"nothing more can be written: {error.strerror}", "make room", 2)
    if isinstance(error, OSError) and error.filename is not None and error.errno in UNUSABLE:
        _trace_if_wanted(error)
        said = f"{error.filename} cannot be used: {error.strerror}"
        return Failure(said, UNUSABLE[error.errno], 2)
    if isinstance(error, FileNotFoundError) and error.filename is None:  # of os.getcwd alone
        return Failure("the working folder is gone", "go to one that is there", 2)
    return _mistake(error)


def _trace_if_wanted(error: Exception) -> None:
    if logging.getLogger("outpace").isEnabledFor(logging.DEBUG):
        import traceback

        traceback.print_exception(error)


def _mistake(error: BaseException) -> Failure:
    import traceback
    from importlib.metadata import PackageNotFoundError, version

    try:
        ours = version("outpace")
    except PackageNotFoundError:
        ours = "(not installed)"
    traceback.print_exception(error)
    return Failure(
        f"this is a mistake in outpace {ours}", "please report it with the lines above", 2
    )


def leave_quietly() -> None:
    """The reader of our output went away: say no more, and be quiet at the end too."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
