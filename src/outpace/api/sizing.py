"""Memory and arithmetic of a training's step."""

from __future__ import annotations

from pathlib import Path

import msgspec

from outpace.adapters.work import Output, Progress, Work, working
from outpace.errors import Interrupted, TargetError, TargetFailed
from outpace.measure.machine import free_memory
from outpace.plan.room import next_to_try
from outpace.records.files import read_json, write_json
from outpace.records.plan import Sizes
from outpace.records.target import Target
from outpace.tune.files import SIZES, STATUS, STEP, read

SILENT = {"KINETO_LOG_LEVEL": "99", "TORCH_CPP_LOG_LEVEL": "ERROR"}
"""torch's profiler writes of its own doings to stderr"""
MOST_TRIES = 6
"""each is a run of the script for some steps"""
HOST_PART = 0.15
"""of the machine's free memory that a batch that is tried may take: some are kept"""


def sizes(
    target: Target,
    *,
    session: Path,
    batch: int | None = None,
    tries: bool = False,
    output: Output = "inherit",
    progress: Progress | None = None,
) -> Sizes:
    """Memory and arithmetic of a training's step, of a run that is thrown away.

    ``batch``: samples of another one that is asked about. ``tries``: on a GPU the largest batch that fits is
    run too, in further runs.

    Raises TargetError where the script trains nothing, TargetFailed with its exit code where it fails.
    """
    with working(target, session, output, progress) as work:
        work.tell("a step's memory", 0, 1)
        (work.session / STEP).unlink(missing_ok=True)
        code = work.launch("outpace.tune.sizes:begin", {"batch": batch}, work.session, SILENT)
        if code == Interrupted.exit_code:
            raise KeyboardInterrupt
        found, told = None, read(work.session / STATUS, {})
        if (work.session / STEP).exists():
            found = read_json(work.session / STEP, Sizes)
        if found is not None and found.steps and tries:
            found = tried(work, found)
        if found is not None:
            write_json(work.session / SIZES, found)
    if found is None or not found.steps:
        hint = "see what `outpace diagnose` says of it"
        if found is not None and found.notes and told.get("stopped"):
            raise TargetError("no step's memory could be measured", "; ".join(found.notes))
        if not code:
            ended = f"{target.name} came to its end before its steps could be measured"
            raise TargetError(ended, hint)
        ended = f"{target.name} ended with exit code {code} before its steps could be measured"
        raise TargetFailed(ended, hint, exit_code=code)
    return found


def tried(work: Work, sizes: Sizes) -> Sizes:
    """The same, with what is known once the largest batch was tried, and less where it did not fit."""
    for _ in range(MOST_TRIES):
        own = sizes.steps[0]
        most = HOST_PART * free_memory() / max(1, own.data) * own.batch
        batch = next_to_try(sizes, int(most))
        if batch is None:
            break
        work.tell("the largest batch", 0, 1, f"{batch:,} samples are tried")
        # So it stays where the process comes to its end.
        write_json(work.session / STEP, msgspec.structs.replace(sizes, failed=batch))
        spec = {"sizes": msgspec.to_builtins(sizes), "batch": batch}
        code = work.launch("outpace.tune.largest_batch:begin", spec, work.session, SILENT)
        if code == Interrupted.exit_code:
            raise KeyboardInterrupt
        sizes = read_json(work.session / STEP, Sizes)
    return sizes
