"""A recipe that `outpace tune` wrote, at work in a Trainer: the seams are in while it trains."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from outpace.errors import RecipeError
from outpace.records.recipe_file import read_recipe
from outpace.train.run import Run


@contextmanager
def recipe_applied(recipe: str | Path | None, run: Run) -> Iterator[None]:
    """The remedies of a recipe at work on a training's model and optimizer."""
    if recipe is None:
        yield
        return
    from outpace.seams.host import RootFacts
    from outpace.tune.assemble import assemble, setup_of

    setup = setup_of((r.name, r.settings) for r in read_recipe(Path(recipe)).remedies)
    if setup.environment:
        names = ", ".join(name for name, _ in setup.environment)
        raise RecipeError(
            f"{recipe} sets environment variables ({names}), which only a new process can take",
            f"outpace run --recipe {recipe} your-script.py",
        )
    host = assemble()
    host.install()
    host.roots[run.model] = RootFacts(has_parameters=True)
    host.optimizers.add(run.optimizer)
    host.switch(setup)
    try:
        yield
    finally:
        host.remove()
