"""What is shown of an error: the script's own without our frames, ours with them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from outpace.seams.writes import install
from tests.remedies.trainings import hosted


def shown(act: Callable[[], object], capsys: pytest.CaptureFixture[str]) -> str:
    """What Python prints of the error that comes of it."""
    try:
        act()
    except Exception as error:
        sys.excepthook(type(error), error, error.__traceback__)
    return capsys.readouterr().err


def test_an_error_of_what_a_seam_stands_in_the_place_of_is_the_scripts(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with hosted():
        told = shown(lambda: torch.ones(3).item(), capsys)
    assert told.splitlines()[-1].startswith("RuntimeError: a Tensor with 3 elements")
    assert "outpace" not in told


def test_an_error_of_the_system_is_the_scripts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with hosted():
        undo = install(tmp_path / "scratch")
        try:
            told = [
                shown(Path("missing.csv").read_text, capsys),
                shown(Path("missing/a.csv").touch, capsys),
            ]
        finally:
            undo()
    for each in told:
        assert each.splitlines()[-1].startswith("FileNotFoundError: [Errno 2]")
        assert "outpace" not in each


def test_a_mistake_of_ours_is_shown_whole(capsys: pytest.CaptureFixture[str]) -> None:
    with hosted() as host:
        host.mode, seam = "train", host.seams["transfer"]
        seam.setup = None  # type: ignore[attr-defined]
        told = shown(lambda: torch.ones(1).item(), capsys)
    assert told.splitlines()[-1].startswith("AttributeError")
    assert "transfer.py" in told
