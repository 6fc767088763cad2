"""The files and the text of the user's modules, to see what a script is written to do.

A module that waits to be imported until it is used is looked at as it stands: it is not run.
"""

from __future__ import annotations

import linecache
import re
import sys
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from outpace.seams.where import is_user_file


def user_files() -> list[str]:
    """The files of those that are imported by now, each once."""
    files = dict.fromkeys(map(file_of, list(sys.modules.values())))
    return [file for file in files if file is not None and is_user_file(file)]


def user_modules() -> Iterator[list[str]]:
    """The lines of each."""
    return map(linecache.getlines, user_files())


def say(pattern: re.Pattern[str]) -> bool:
    """Whether a line of theirs has it."""
    return any(any(map(pattern.search, lines)) for lines in user_modules())


def file_of(module: object) -> str | None:
    """The file of what is in ``sys.modules``, be it a module or not."""
    file = attributes_of(module).get("__file__")
    return file if isinstance(file, str) else None


def attributes_of(thing: object) -> Mapping[str, Any]:
    """What an object has of its own; none of its code is run for it."""
    try:
        found = object.__getattribute__(thing, "__dict__")
    except Exception:  # there is none, or a property stands for it
        return {}
    return found if isinstance(found, dict | MappingProxyType) else {}
