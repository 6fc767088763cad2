"""A folder of files as a data set: a sample a file, its class the folder that it lies in."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, final

from outpace.errors import DataError
from outpace.serve.listing import names_below
from outpace.serve.meta import Skipped
from outpace.serve.reading import unreadable
from outpace.serve.strings import PackedStrings

UNNAMED = "data"
"""field of what has no suffix, and of what has that of a class where its folder is one"""


@final
class Files:
    """Every file below a folder, sorted by its path from there.

    A sample is ``{"__key__": "cat/0001", "jpg": bytes, "cls": 3}``: path without suffix, content under
    its suffix, and the number of its first-level folder among ``classes``, which are sorted. A file
    outside of any sub-folder has no "cls"; without sub-folders ``classes`` is None.
    """

    def __init__(
        self, root: str | Path, names: list[str] | None = None, skipped: list[Skipped] | None = None
    ) -> None:
        self.root = os.fspath(root)
        names = names_below(self.root, skipped) if names is None else names
        if not names:
            raise DataError(f"{self.root}: there are no files in it")
        self.names = PackedStrings(names)
        self._number = numbered(names)
        self.classes = tuple(self._number) or None

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index: int) -> dict[str, Any]:
        name = self.names[index]
        path = os.path.join(self.root, name)
        try:
            with open(path, "rb") as file:
                data = file.read()
        except OSError as error:
            raise unreadable(path, error) from error
        return sample_of(name, data, self._number)

    def where(self, index: int) -> str:
        """The file's path."""
        return os.path.join(self.root, self.names[index])


def numbered(names: Sequence[str]) -> dict[str, int]:
    """First-level folder -> its number among them."""
    folders = sorted({name.partition("/")[0] for name in names if "/" in name})
    return {folder: number for number, folder in enumerate(folders)}


def sample_of(name: str, data: bytes, numbers: Mapping[str, int]) -> dict[str, Any]:
    """A file's sample; ``name`` is its path from where the data set begins."""
    key, suffix = os.path.splitext(name)
    content = field(suffix[1:])
    top, inside, _ = name.partition("/")
    if not inside:
        return {"__key__": key, content: data}
    return {"__key__": key, UNNAMED if content == "cls" else content: data, "cls": numbers[top]}


def field(suffix: str) -> str:
    """The field that a suffix gives: lower case, and one name for JPEG."""
    suffix = suffix.lower()
    return "jpg" if suffix == "jpeg" else suffix or UNNAMED
