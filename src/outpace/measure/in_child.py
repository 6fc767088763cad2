"""A module of ours in a child process: it measures there, and prints what it found as JSON.

The child sees this package, but not the working directory's modules. What a child of its own can't
tell is the state of this process.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

import msgspec

T = TypeVar("T")


def in_child(
    module: str, kind: type[T], *, patience_s: float, without: Iterable[str] = ()
) -> T | None:
    """What ``python -m module`` prints; None where it fails or takes longer than ``patience_s``.

    ``without``: variables of the environment that it doesn't get.
    """
    source = str(Path(__file__).resolve().parents[2])
    paths = [source, *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in paths if path)}
    for name in without:
        environment.pop(name, None)
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", module],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=patience_s,
            check=True,
        )
        return msgspec.json.decode(done.stdout, type=kind)
    except (OSError, subprocess.SubprocessError, msgspec.MsgspecError):
        return None
