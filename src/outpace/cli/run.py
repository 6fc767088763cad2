"""``outpace run``."""

from __future__ import annotations

from pathlib import Path

import click

from outpace.cli.options import TargetCommand, option, target_argument
from outpace.errors import RecipeError

DEFAULT = Path("outpace.toml")


@click.command(
    "run",
    cls=TargetCommand,
    epilog="""\b
Examples:
  outpace run train.py --epochs 30
  outpace run --recipe fast.toml -m pkg.train
  outpace run -- torchrun --nproc-per-node 2 train.py""",
)
@option(
    "--recipe",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The recipe (default: outpace.toml).",
)
@option("--no-recipe", is_flag=True, help="Run as it is.")
@option(
    "--session",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for what is noted (default: .outpace/last-run).",
)
@target_argument
def command(
    words: tuple[str, ...], recipe: Path | None, no_recipe: bool, session: Path | None
) -> int:
    """Run a training under a recipe, its script unchanged; its exit code is the script's own."""
    from outpace.adapters.target import parse_target

    if recipe is not None and no_recipe:
        raise click.UsageError("--recipe and --no-recipe exclude each other")
    target = parse_target(words)
    chosen = None if no_recipe else recipe or DEFAULT
    if chosen is not None and not chosen.exists():
        hint = f"outpace tune {' '.join(target.words)} makes one; --no-recipe runs without"
        raise RecipeError(f"there is no recipe {str(chosen)!r}", hint)
    from outpace.api import run

    return run(target, recipe=chosen, session=session)
