"""``outpace tune``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from outpace.cli.options import (
    Bytes,
    Duration,
    Number,
    TargetCommand,
    common,
    option,
    stronger,
    target_argument,
)
from outpace.cli.telling import tell, tell_hint
from outpace.errors import NotProven, UsageError

if TYPE_CHECKING:
    from outpace.cli.measuring import Given


@click.command(
    "tune",
    cls=TargetCommand,
    epilog="""\b
Examples:
  outpace tune train.py --epochs 30
  outpace tune --time 5m --diff train.py
  outpace tune --skip bf16 --recipe fast.toml -m pkg.train
  outpace tune --ram 4G --disk 20G train.py""",
)
@option(
    "--time",
    "time_s",
    type=Duration(),
    help="Time for it all (default: 5 % of the run or what a proof needs, 3 to 10 minutes).",
)
@option(
    "--recipe",
    type=click.Path(path_type=Path, dir_okay=False),
    default="outpace.toml",
    show_default=True,
    help="Where the recipe goes; a file there is replaced with --force only.",
)
@option("--diff", is_flag=True, help="Print the patch that a person would make in the script.")
@option(
    "--seeds",
    type=click.IntRange(min=2),
    default=3,
    show_default=True,
    help="Seeds of the proof at the least; up to 8 where there is time.",
)
@option(
    "--margin",
    type=Number(min=0, min_open=True),
    default=0.01,
    show_default=True,
    help="How much worse counts as no worse, as a share of the loss's fall, or of a metric.",
)
@option("--require-proof", is_flag=True, help="Exit with 4 where quality could not be proven.")
@option("--only", multiple=True, metavar="REMEDY", help="Try only these (a,b,c).")
@option("--skip", multiple=True, metavar="REMEDY", help="Do not try these.")
@option(
    "--ram",
    "ram_bytes",
    type=Bytes(),
    help="Memory that kept samples or images may take; half of what is free at the most (default).",
)
@option(
    "--disk",
    "disk_bytes",
    type=Bytes(),
    help="Disk that decoded images may take which memory does not hold (default: none).",
)
@common
@target_argument
def command(
    words: tuple[str, ...],
    recipe: Path,
    diff: bool,
    only: tuple[str, ...],
    skip: tuple[str, ...],
    quiet: bool,
    time_s: float | None,
    seeds: int,
    margin: float,
    require_proof: bool,
    ram_bytes: int | None,
    disk_bytes: int | None,
    begin: str | None,
    allow: tuple[Path, ...],
    **shared: Any,
) -> int:
    """Find, measure and prove a recipe that makes a training faster.

    Each remedy is predicted, then measured in pairs on top of those accepted; what could touch
    quality must pass a non-inferiority test over several seeds. The recipe is written as TOML.
    """
    from outpace.adapters.target import parse_target
    from outpace.cli.measuring import given, kept, show
    from outpace.remedies.catalog import remedy

    only, skip = names(only), names(skip)
    ctx = click.get_current_context()
    if stronger(ctx, "only", "skip"):
        skip = tuple(name for name in skip if name not in only)
    if stronger(ctx, "skip", "only"):
        # Without any, all would be tried.
        only = tuple(name for name in only if name not in skip) or only
    if both := sorted({*only} & {*skip}):
        raise UsageError(
            f"{both[0]} is to be tried, and is to be left out", "name it in --only or in --skip"
        )
    for name in (*only, *skip):
        if remedy(name).advice_only and name in only:
            raise UsageError(
                f"{name} is advice, to be followed by hand: there is nothing to try",
                f"outpace remedies {name} says what to change",
            )
    if diff and (target := parse_target(words)).kind != "script":
        raise UsageError(
            f"--diff is of a script, and {target.name} is a {target.kind}",
            "name the script's file, or leave out --diff",
        )
    options = given(words, **shared)
    from outpace.api import tune

    try:
        with kept(options.folder, quiet=quiet) as progress:
            found = tune(
                options.target,
                session=options.folder,
                recipe=recipe,
                force=options.force,
                time_s=time_s,
                seeds=seeds,
                margin=margin,
                require_proof=require_proof,
                only=only,
                skip=skip,
                ram_bytes=ram_bytes,
                disk_bytes=disk_bytes,
                begin=begin,
                allow=allow,
                output="stderr" if options.as_json else "inherit",
                progress=progress,
            )
    except NotProven as error:
        return show_unproven(error, options)
    code = show(found, options)
    if diff and not options.as_json:
        # In UTF-8 as the script is, whatever stdout's encoding.
        click.echo(found.diff.encode(errors="surrogateescape"), nl=False)
        if not found.diff:
            tell_hint("no patch: nothing of the recipe can be written into the script")
        elif found.not_in_diff:
            from outpace.report.sentences import not_in_diff

            tell_hint(not_in_diff(found))
    return code


def show_unproven(error: NotProven, options: Given) -> int:
    """What was measured all the same, and that it was not enough."""
    from outpace.cli.measuring import show

    show(error.session, options)
    tell(error.message, error.hint)
    return error.exit_code


def names(values: tuple[str, ...]) -> tuple[str, ...]:
    """Several options, or one with commas."""
    return tuple(name.strip() for value in values for name in value.split(",") if name.strip())
