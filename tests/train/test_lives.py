"""Trainings that are killed again and again: no bit is lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT


def lives(folder: Path, kills: int) -> dict[str, Any]:
    """What became of trainings that were killed so often."""
    command = [sys.executable, "-m", "tests.train.lives", str(folder), str(kills), "0"]
    found = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert found.returncode == 0, found.stderr
    told: dict[str, Any] = json.loads(found.stdout)
    assert told["kills"] >= kills
    assert told["unlike"] == []
    return told


def test_killed_they_end_with_the_same_bits(tmp_path: Path) -> None:
    lives(tmp_path, 4)


@pytest.mark.slow
def test_killed_fifty_times_they_end_with_the_same_bits(tmp_path: Path) -> None:
    told = lives(tmp_path, 50)
    assert len(told["name"]) == 10
    assert told["kind"] == ["none", "processes", "threads"]
    assert told["cut_short"] > 0  # killed while a checkpoint was written
