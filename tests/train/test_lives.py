"""Trainings that are killed again and again: no bit is lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.mortal import lives


def unscathed(folder: Path, kills: int) -> dict[str, Any]:
    """What became of trainings that were killed so often."""
    told = lives("tests.train.lives", folder, kills, 280)
    assert told["unlike"] == []
    assert told["went_on"] > 0  # one that begins anew ends alike too
    return told


def test_killed_they_end_with_the_same_bits(tmp_path: Path) -> None:
    unscathed(tmp_path, 4)


@pytest.mark.slow
def test_killed_fifty_times_they_end_with_the_same_bits(tmp_path: Path) -> None:
    told = unscathed(tmp_path, 50)
    assert len(told["name"]) == 10
    assert told["kind"] == ["none", "processes", "threads"]
    assert told["cut_short"] > 0  # killed while a checkpoint was written
