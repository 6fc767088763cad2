"""``outpace diagnose``."""

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
    "diagnose",
    context_settings=TARGET_SETTINGS,
    epilog="""\b
Examples:
  outpace diagnose train.py --epochs 3
  outpace diagnose --time 30s --json -m pkg.train > diagnosis.json""",
)
@common
@click.option(
    "--time",
    "time_s",
    type=Duration(),
    help="Time for experiments, from the first step on (default: 5 % of the run, 20 s to 60 s).",
)
@click.option("--steps", type=click.IntRange(min=3), help="Stop after this many steps.")
@click.option(
    "--trace", type=click.Path(path_type=Path), help="Write a Chrome/Perfetto trace of a few steps."
)
@click.option("--seed", type=int, help="Shift every seed that the script sets by this.")
@target_argument
def command(
    words: tuple[str, ...],
    module: str | None,
    time_s: float | None,
    steps: int | None,
    trace: Path | None,
    seed: int | None,
    session: Path | None,
    as_json: bool,
    quiet: bool,
) -> int:
    """Find by experiment what a training is bound by.

    The target runs in a process of its own, watched and experimented upon; its results are thrown
    away and what it writes goes to a scratch folder, so that nothing of yours is changed.
    """
    from outpace.adapters.target import parse_target
    from outpace.api import diagnose
    from outpace.cli.progress import ProgressLine
    from outpace.cli.shown import show

    target = parse_target([*(["-m", module] if module else []), *words])
    folder = session_folder(session, target.name)
    with ProgressLine(quiet=quiet) as progress:
        found = diagnose(
            target,
            session=folder,
            time_s=time_s,
            steps=steps,
            output="stderr" if as_json else "inherit",
            progress=progress,
            trace=trace,
            seed=seed,
        )
    return show(found, folder, as_json=as_json)
