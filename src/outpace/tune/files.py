"""The files through which a measured process and its parent speak; all are written atomically."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

from outpace.records.files import replace_text

EVIDENCE = "evidence.json"
MARKER = "arm.json"
STATUS = "status.json"
PROGRESS = "progress.json"
PROGRESS_EVERY_S = 0.2
TRIALS = "trials.json"
LOSSES = "losses.json"
CONTESTS = "contests.json"
TRACE = "trace-events.json"
SIZES = "sizes.json"
STEP = "step.json"
"""sizes, as far as they are known"""
CHECKPOINT = "safety.pt"
WARM_UP = 5
"""steps of a run that is timed, the first, that do not count"""


def write(path: Path, value: Any) -> None:
    """Write a small JSON file whole or not at all; a full disk is the caller's to meet."""
    replace_text(path, json.dumps(value))


def tell(folder: Path, **told: Any) -> None:
    """Write down how far a process is; a disk that is full does not stop it."""
    with contextlib.suppress(OSError):
        write(folder / PROGRESS, told)


def has_steps(folder: Path) -> bool:
    """Whether a process of this run has written down a training: what evaluates it after that has none."""
    return bool(read(folder / STATUS, {}).get("steps"))


def read(path: Path, default: Any = None) -> Any:
    """Read it, or ``default`` where it is missing or not whole."""
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return default
