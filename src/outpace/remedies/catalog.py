"""All remedies: those of this package, and those that others add by the entry point."""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import pkgutil
import sys

from outpace.errors import UsageError
from outpace.remedies.base import Remedy

ENTRY_POINT = "outpace.remedies"
NOT_REMEDIES = ("base", "catalog", "edits", "model", "patch", "room")


@functools.cache
def all_remedies() -> tuple[type[Remedy], ...]:
    """Every remedy class, by stage and name."""
    package = importlib.import_module("outpace.remedies")
    found: dict[str, type[Remedy]] = {}
    for module in pkgutil.iter_modules(package.__path__):
        if module.name not in NOT_REMEDIES:
            add_from(importlib.import_module(f"outpace.remedies.{module.name}"), found)
    for entry in importlib.metadata.entry_points(group=ENTRY_POINT):
        try:
            remedy = entry.load()
            found.setdefault(remedy.name, remedy)
        except Exception as error:
            print(f"outpace: the remedy {entry.name!r} cannot be loaded: {error}", file=sys.stderr)
    return tuple(sorted(found.values(), key=lambda r: (r.stage, r.name)))


def add_from(module: object, found: dict[str, type[Remedy]]) -> None:
    """Add the remedy that a module defines."""
    for value in vars(module).values():
        if (
            isinstance(value, type)
            and issubclass(value, Remedy)
            and value.__module__ == module.__name__  # type: ignore[attr-defined]
        ):
            found[value.name] = value


def remedy(name: str) -> Remedy:
    """A remedy by its name."""
    for kind in all_remedies():
        if kind.name == name:
            return kind()
    names = ", ".join(kind.name for kind in all_remedies())
    raise UsageError(f"there is no remedy called {name!r}", f"there are: {names}")
