"""A setting of the process that a Setup may hold, and that is the script's own otherwise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Switch:
    """``read`` gives the setting as it is, ``write`` sets it."""

    def __init__(self, read: Callable[[], Any], write: Callable[[Any], object]) -> None:
        self.read, self.write = read, write
        self._own: list[Any] = []
        """the script's, while it is held"""

    def hold(self, value: Any) -> None:
        """Set it so, whatever the script has; None: as the script has it."""
        if value is None:
            self.release()
            return
        if not self._own:
            self._own.append(self.read())
        self.write(value)

    def release(self) -> None:
        """The script's own comes back."""
        if self._own:
            self.write(self._own.pop())

    def note(self, value: Any) -> None:
        """The script sets it: at once, or once it is held no more."""
        if self._own:
            self._own[0] = value
        else:
            self.write(value)

    def scripts(self) -> Any:
        """What the script has it at."""
        return self._own[0] if self._own else self.read()
