"""``outpace run``."""

from __future__ import annotations

from pathlib import Path

import click

from outpace.cli.options import TARGET_SETTINGS, target_argument
from outpace.errors import RecipeError


@click.command(
    "run",
    context_settings=TARGET_SETTINGS,
    epilog="""\b
Examples:
  outpace run train.py --epochs 30
  outpace run --recipe fast.toml -m pkg.train""",
)
@click.option(
    "--recipe", type=click.Path(path_type=Path), help="The recipe (default: outpace.toml)."
)
@click.option("--no-recipe", is_flag=True, help="Run as it is.")
@click.option("--session", type=click.Path(path_type=Path), help="Folder for what is noted.")
@target_argument
def command(
    words: tuple[str, ...],
    module: str | None,
    recipe: Path | None,
    no_recipe: bool,
    session: Path | None,
) -> int:
    """Run a training under a recipe, its script unchanged; its exit code is the script's own."""
    from outpace.adapters.target import parse_target
    from outpace.api import run

    if recipe is not None and no_recipe:
        raise click.UsageError("--recipe and --no-recipe exclude each other")
    chosen = None if no_recipe else recipe or Path("outpace.toml")
    target = parse_target([*(["-m", module] if module else []), *words])
    if chosen is not None and not chosen.exists():
        hint = f"outpace tune {' '.join(target.words)} makes one; --no-recipe runs without"
        raise RecipeError(f"there is no recipe {str(chosen)!r}", hint)
    return run(target, recipe=chosen, session=session)
