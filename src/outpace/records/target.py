"""What the user runs."""

from __future__ import annotations

from typing import Literal

import msgspec


class Target(msgspec.Struct, frozen=True):
    """A script, a module (``-m pkg.train``) or a command (``-- torchrun ... train.py``).

    ``unbuffered``: it was named as ``python -u train.py``.
    """

    kind: Literal["script", "module", "command"]
    name: str
    args: tuple[str, ...] = ()
    cwd: str = "."
    unbuffered: bool = False

    @property
    def words(self) -> list[str]:
        """The target as a person types it, without the interpreter."""
        head = ["-m", self.name] if self.kind == "module" else [self.name]
        return [*head, *self.args]
