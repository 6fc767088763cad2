"""Outpace in a script's own lines, for those who prefer that to the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

_metrics: dict[str, float] = {}


def log(**metrics: float) -> None:
    """Report metrics such as ``outpace.log(accuracy=0.93)``. Which way is better is told from the name:
    smaller for a loss, error, perplexity, rmse, wer and their like, larger for accuracy, precision, recall,
    score, auc and theirs; one of another name is not to change either way, unless it is of a time or a speed
    (epoch_s, images_per_s), which nothing is judged by.

    Where a script reports metrics, the proof judges by their last values and by the loss.
    Without outpace around the script this does nothing.
    """
    _metrics.update({name: float(value) for name, value in metrics.items()})


def logged() -> dict[str, float]:
    """The last value of each metric."""
    return dict(_metrics)


def apply(recipe: str | Path, *, model: Any = None, optimizer: Any = None) -> Any:
    """Put a recipe on a script's objects, as `outpace run --recipe` does from outside.

    Call it once, before training; it holds for every DataLoader, model and optimizer from then on,
    the model and optimizer given being brought to it at once; a DataLoader is met when it is
    iterated. Returns the host, whose ``remove()`` undoes it. Raises
    RecipeError for a recipe that cannot be read, or one that only a new process can take.
    """
    from outpace.tune.assemble import apply_recipe

    return apply_recipe(recipe, model=model, optimizer=optimizer)
