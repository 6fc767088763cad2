"""All remedies: those of this package, and those that others add by the entry point."""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import pkgutil
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from outpace.errors import RecipeError, UsageError
from outpace.records.recipe import Recipe
from outpace.records.trial import Settings, Trial
from outpace.remedies.base import Remedy
from outpace.seams.setup import AS_IS, Setup

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


def setup_of(remedies: Iterable[tuple[str, Settings]]) -> Setup:
    """The Setup of remedies applied one after the other."""
    setup = AS_IS
    for name, settings in remedies:
        setup = remedy(name).setup(setup, settings)
    return setup


def setup_of_trials(trials: Iterable[Trial]) -> Setup:
    """The same of remedies that were tried."""
    return setup_of((trial.remedy, trial.settings) for trial in trials)


def setup_of_recipe(recipe: Recipe, path: Path) -> Setup:
    """The same of a recipe. Raises RecipeError for a remedy or setting that is not known, or cannot be so."""
    setup = AS_IS
    for each in recipe.remedies:
        try:
            one, asked = remedy(each.name), Asked(each.settings)
            one.setup(AS_IS, asked)
            setup = one.setup(setup, each.settings)
        except UsageError as error:
            raise RecipeError(f"{path}: {error.message}", error.hint) from error
        except (KeyError, TypeError, ValueError) as error:
            why = f"{error} is missing" if isinstance(error, KeyError) else str(error)
            raise RecipeError(
                f"{path}: {each.name} cannot be set up by {each.settings}: {why}",
                f"outpace remedies {each.name}",
            ) from error
        page = f"outpace remedies {each.name}"
        if one.advice_only:
            raise RecipeError(f"{path}: {each.name} is advice, to be followed by hand", page)
        if unknown := ", ".join(each.settings.keys() - asked.names):
            raise RecipeError(f"{path}: {each.name} has no setting called {unknown}", page)
    return setup


class Asked(dict[str, Any]):
    """Settings that note which of them a remedy asks for."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.names: set[object] = set()

    def __getitem__(self, name: str) -> Any:
        self.names.add(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        """The setting."""
        self.names.add(name)
        return super().get(name, default)

    def __contains__(self, name: object) -> bool:
        self.names.add(name)
        return super().__contains__(name)
