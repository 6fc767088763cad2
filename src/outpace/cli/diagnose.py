"""``outpace diagnose``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from outpace.cli.options import Duration, TargetCommand, common, option, target_argument
from outpace.errors import UsageError


@click.command(
    "diagnose",
    cls=TargetCommand,
    epilog="""\b
Examples:
  outpace diagnose train.py --epochs 3
  outpace diagnose --time 30s --json -m pkg.train > diagnosis.json
  outpace diagnose -o report.html -- torchrun --nproc-per-node 2 train.py""",
)
@option(
    "--time",
    "time_s",
    type=Duration(),
    help="Time for experiments, from the first step on (default: 5 % of the run or 150 steps, 20 s to 60 s).",
)
@option("--steps", type=click.IntRange(min=3), help="Stop after this many steps.")
@option(
    "--trace",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write a Chrome/Perfetto trace of a few steps.",
)
@option("--seed", type=int, help="Shift every seed that the script sets by this.")
@common
@target_argument
def command(
    words: tuple[str, ...],
    time_s: float | None,
    steps: int | None,
    trace: Path | None,
    seed: int | None,
    begin: str | None,
    allow: tuple[Path, ...],
    quiet: bool,
    **shared: Any,
) -> int:
    """Find by experiment what a training is bound by.

    The target runs in a process of its own, watched and experimented upon; its results are thrown
    away and what it writes goes to a scratch folder, so that nothing of yours is changed but temporary
    files and caches.
    """
    from outpace.cli.measuring import check_file, given, kept, show

    if trace is not None:
        report = shared["output"]
        if report is not None and report.absolute() == trace.absolute():
            raise UsageError(f"{trace} is to be the trace and the report", "name two files")
        check_file(trace, shared["force"], trace=True)
    options = given(words, **shared)
    from outpace.api import diagnose

    with kept(options.folder, quiet=quiet) as progress:
        found = diagnose(
            options.target,
            session=options.folder,
            time_s=time_s,
            steps=steps,
            output="stderr" if options.as_json else "inherit",
            progress=progress,
            trace=trace,
            seed=seed,
            begin=begin,
            allow=allow,
        )
    return show(found, options)
