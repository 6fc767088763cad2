"""The text of the user's modules, to see what a script is written to do."""

from __future__ import annotations

import linecache
import sys
from collections.abc import Iterator

from outpace.seams.where import is_user_file


def user_modules() -> Iterator[list[str]]:
    """The lines of each that is imported by now."""
    files = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
    for file in files:
        if isinstance(file, str) and is_user_file(file):
            yield linecache.getlines(file)
