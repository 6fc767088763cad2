"""The exceptions that a user can meet, each with the exit code that the command line gives it.

OutpaceError            2   a mistake that the user can mend: a message, a hint, no traceback
├── UsageError          2   the command line or a setting is wrong
├── TargetError         2   the target cannot be run (missing file, no training found)
│   └── TargetFailed    1   it failed, as it told itself; or its own exit code
├── RecipeError         2   a recipe cannot be read or applied
├── SessionError        2   a session folder cannot be read or written
├── DataError           2   training data cannot be read, packed or trusted
├── MissingExtra        2   an optional package is needed: names the pip command
├── Interrupted         130 Ctrl-C, and what there is by then
├── DeadlineError       3   the deadline is missed or cannot be met
└── NotProven           4   quality could not be proven and --require-proof was asked
"""

from __future__ import annotations

from typing import Any


class OutpaceError(Exception):
    """A mistake that the user can mend. ``message`` says what was seen, ``hint`` what to do."""

    exit_code = 2

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        if hint is not None:
            self.add_note(f"hint: {hint}")  # a traceback in a user's own script tells it too


class UsageError(OutpaceError):
    """The command line or a setting is wrong."""


class TargetError(OutpaceError):
    """The target cannot be run or measured."""


class TargetFailed(TargetError):
    """The target failed, as it told itself; ``exit_code`` is its own."""

    exit_code = 1

    def __init__(
        self, message: str, hint: str | None = None, *, exit_code: int | None = None
    ) -> None:
        super().__init__(message, hint)
        if exit_code is not None:
            self.exit_code = exit_code


class RecipeError(OutpaceError):
    """A recipe cannot be read or applied."""


class SessionError(OutpaceError):
    """A session folder cannot be read or written."""


class DataError(OutpaceError):
    """Training data cannot be read, packed or trusted; the message names the file or the sample."""


class MissingExtra(OutpaceError):
    """An optional package is needed for what was asked."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(
            f"this needs the package {package!r}, which is not installed",
            f"pip install 'outpace[{extra}]'",
        )


class Interrupted(OutpaceError):
    """Ctrl-C; the hint says where that is which was done by then."""

    exit_code = 130


class DeadlineError(OutpaceError):
    """The deadline is missed or cannot be met."""

    exit_code = 3


class NotProven(OutpaceError):
    """Quality could not be proven within the time given. ``session``: what was measured all the same."""

    exit_code = 4

    def __init__(self, message: str, hint: str | None = None, *, session: Any) -> None:
        super().__init__(message, hint)
        self.session = session
