"""Memory and arithmetic of a training's step."""

from __future__ import annotations

from pathlib import Path

from outpace.adapters.work import Output, Progress, working
from outpace.errors import Interrupted, TargetError
from outpace.records.files import read_json
from outpace.records.plan import Sizes
from outpace.records.target import Target
from outpace.tune.files import SIZES

SILENT = {"KINETO_LOG_LEVEL": "99", "TORCH_CPP_LOG_LEVEL": "ERROR"}
"""torch's profiler writes of its own doings to stderr"""


def sizes(
    target: Target,
    *,
    session: Path,
    batch: int | None = None,
    output: Output = "inherit",
    progress: Progress | None = None,
) -> Sizes:
    """Memory and arithmetic of a training's step, of a run that is thrown away.

    ``batch``: samples of another one that is asked about.

    Raises TargetError where the script trains nothing.
    """
    with working(target, session, output, progress) as work:
        work.tell("a step's memory", 0, 1)
        (work.session / SIZES).unlink(missing_ok=True)
        code = work.launch("outpace.tune.sizes:begin", {"batch": batch}, work.session, SILENT)
        if code == Interrupted.exit_code:
            raise KeyboardInterrupt
        found = None
        if (work.session / SIZES).exists():
            found = read_json(work.session / SIZES, Sizes)
    if found is None or not found.steps:
        raise TargetError(
            f"{target.name} ended with exit code {code} before its steps could be measured"
            if code
            else f"{target.name} came to its end before its steps could be measured",
            "see what `outpace diagnose` says of it",
        )
    return found
