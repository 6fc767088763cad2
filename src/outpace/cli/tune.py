"""``outpace tune``."""

from __future__ import annotations

from pathlib import Path

import click

from outpace.cli.options import (
    TARGET_SETTINGS,
    Duration,
    common,
    session_folder,
    target_argument,
)


@click.command(
    "tune",
    context_settings=TARGET_SETTINGS,
    epilog="""\b
Examples:
  outpace tune train.py --epochs 30
  outpace tune --time 5m --diff train.py
  outpace tune --skip bf16 --recipe fast.toml train.py""",
)
@common
@click.option(
    "--time",
    "time_s",
    type=Duration(),
    help="Time for it all (default: 5 % of the run, 3 to 10 minutes).",
)
@click.option(
    "--recipe",
    type=click.Path(path_type=Path),
    default="outpace.toml",
    show_default=True,
    help="Where the recipe goes.",
)
@click.option("--force", is_flag=True, help="Replace a recipe that is there already.")
@click.option(
    "--diff", is_flag=True, help="Print the patch that a person would make in the script."
)
@click.option(
    "--seeds", type=click.IntRange(min=2), default=3, show_default=True, help="Seeds of the proof."
)
@click.option(
    "--margin",
    type=click.FloatRange(min=0, min_open=True),
    default=0.01,
    show_default=True,
    help="How much worse counts as no worse, as a share of the loss's fall.",
)
@click.option(
    "--require-proof", is_flag=True, help="Exit with 4 where quality could not be proven."
)
@click.option("--only", multiple=True, metavar="REMEDY", help="Try only these.")
@click.option("--skip", multiple=True, metavar="REMEDY", help="Do not try these.")
@target_argument
def command(
    words: tuple[str, ...],
    module: str | None,
    time_s: float | None,
    recipe: Path,
    force: bool,
    diff: bool,
    seeds: int,
    margin: float,
    require_proof: bool,
    only: tuple[str, ...],
    skip: tuple[str, ...],
    session: Path | None,
    as_json: bool,
    quiet: bool,
) -> int:
    """Find, measure and prove a recipe that makes a training faster.

    Each remedy is predicted, then measured in pairs on top of those accepted; what could touch
    quality must pass a non-inferiority test over several seeds. The recipe is written as TOML.
    """
    from outpace.adapters.target import parse_target
    from outpace.api import tune
    from outpace.cli.progress import ProgressLine
    from outpace.cli.shown import show
    from outpace.remedies.catalog import remedy

    for name in (*only, *skip):
        remedy(name)
    target = parse_target([*(["-m", module] if module else []), *words])
    folder = session_folder(session, target.name)
    with ProgressLine(quiet=quiet) as progress:
        found = tune(
            target,
            session=folder,
            recipe=recipe,
            time_s=time_s,
            force=force,
            seeds=seeds,
            margin=margin,
            require_proof=require_proof,
            only=only,
            skip=skip,
            output="stderr" if as_json else "inherit",
            progress=progress,
        )
    code = show(found, folder, as_json=as_json)
    if diff and not as_json:
        click.echo(found.diff, nl=False)
    return code
