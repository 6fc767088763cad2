"""How a command that measures ends."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from outpace.cli.measuring import kept
from outpace.errors import Interrupted


def interrupted(folder: Path) -> None:
    with kept(folder, quiet=True):
        (folder / "session.json").touch()
        raise KeyboardInterrupt


def test_the_command_of_an_interrupted_session_can_be_pasted(tmp_path: Path) -> None:
    folder = tmp_path / "my session"
    folder.mkdir()
    with pytest.raises(Interrupted) as end:
        interrupted(folder)
    assert shlex.split(end.value.hint or "")[-3:] == ["outpace", "report", str(folder)]
