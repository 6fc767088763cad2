"""A recipe that `outpace tune` wrote, at work in a Trainer: the seams are in while it trains."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from outpace.train.run import Run


@contextmanager
def recipe_applied(recipe: str | Path | None, run: Run) -> Iterator[None]:
    """The remedies of a recipe at work on a training's model and optimizer."""
    if recipe is None:
        yield
        return
    from outpace.tune.assemble import apply_recipe

    host = apply_recipe(recipe, model=run.model, optimizer=run.optimizer)
    try:
        yield
    finally:
        host.remove()
