from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest


def lives(folder: Path, kills: int) -> dict[str, Any]:
    """What became of a training that was killed so often."""
    command = [
        sys.executable,
        str(Path(__file__).with_name("lives.py")),
        str(folder),
        str(kills),
        "0",
    ]
    found = subprocess.run(command, capture_output=True, text=True, timeout=1500)
    assert found.returncode == 0, found.stderr
    told: dict[str, Any] = json.loads(found.stdout)
    assert told["kills"] >= kills
    assert told["unlike"] == 0, told
    return told


def test_killed_it_goes_on_exactly(tmp_path: Path) -> None:
    lives(tmp_path, 4)


@pytest.mark.slow
def test_killed_fifty_times_it_goes_on_exactly(tmp_path: Path) -> None:
    told = lives(tmp_path, 50)
    assert (told["workers"], told["world"]) == ([0, 1, 2, 4], [1, 2, 4])
    assert told["kind"] == ["none", "processes", "threads"]
