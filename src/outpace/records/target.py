"""What the user runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
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


def trains(words: Sequence[str]) -> str:
    """The file or module of a command line that trains, whatever launches it; nothing for no words."""
    for word, following in zip(words, [*words[1:], ""], strict=False):
        if word == "-m" and not following.startswith("torch."):
            return following
        if word.endswith(".py"):
            return word
    return words[0] if words else ""


def train_alike(words: Sequence[str], others: Sequence[str], cwd: str) -> bool:
    """Whether two command lines run one script from that folder, as far as their words can tell."""
    one, other = trains(words), trains(others)
    if not (one.endswith(".py") or other.endswith(".py")):  # modules, or programs by their paths
        return Path(one).name == Path(other).name
    if _file(one) != _file(other):
        return False
    paths = [Path(cwd, each) for each in (one, other)]
    return not all(path.is_file() for path in paths) or paths[0].samefile(paths[1])


def _file(name: str) -> str:
    """That of a script, or of a module."""
    return Path(name).name if name.endswith(".py") else f"{name.rpartition('.')[2]}.py"
