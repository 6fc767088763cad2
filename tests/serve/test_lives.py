from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.mortal import lives


def unscathed(folder: Path, kills: int) -> dict[str, Any]:
    """What became of a training that was killed so often."""
    told = lives("tests.serve.lives", folder, kills, 1500)
    assert told["unlike"] == 0, told
    return told


def test_killed_it_goes_on_exactly(tmp_path: Path) -> None:
    unscathed(tmp_path, 4)


@pytest.mark.slow
def test_killed_fifty_times_it_goes_on_exactly(tmp_path: Path) -> None:
    told = unscathed(tmp_path, 50)
    assert (told["workers"], told["world"]) == ([0, 1, 2, 4], [1, 2, 4])
    assert told["kind"] == ["none", "processes", "threads"]
