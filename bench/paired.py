"""What the benches share: running commands in pairs and stating a ratio with its interval."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from outpace.measure.statistics import paired_gain

ROOT = Path(__file__).parent.parent
EXAMPLES = {
    "image_classifier.py": [],
    "char_gpt.py": [],
    "flights.py": [],
    "mnist_cnn.py": [],
}


class Spent(NamedTuple):
    """Seconds of one command: wall clock, and CPU of it and its children."""

    wall: float
    cpu: float


def spend(command: Sequence[str], cwd: Path, env: dict[str, str] | None = None) -> Spent:
    """Run a command to its end; an exit code other than 0 ends the bench."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    done = subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, **(env or {})},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    wall = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Spent(wall, cpu)


def ratio(old: Sequence[float], new: Sequence[float]) -> str:
    """Old over new, with the interval of their pairs."""
    gain = paired_gain(old, new)
    return f"{gain.speedup:.2f}x [{gain.low:.2f}, {gain.high:.2f}]"
