"""Processes that train by themselves, with this project's tests at hand."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.conftest import ROOT


def ended(
    command: Sequence[str | Path], timeout: float = 300, folder: Path = ROOT
) -> subprocess.CompletedProcess[str]:
    """A process of one thread, once it has ended."""
    env = {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}", "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def printed_by(command: Sequence[str | Path], timeout: float = 300) -> str:
    """What a process of one thread prints; it must end well."""
    done = ended(command, timeout)
    assert done.returncode == 0, done.stderr
    return done.stdout


def launch(torchrun: Sequence[str], world: int, *words: str | Path) -> None:
    """Have ``torchrun`` start a script as so many ranks, and wait until they have ended well."""
    printed_by([*torchrun[:-1], str(world), *words], 400)
