"""The catalogue, with a remedy from elsewhere that says nothing of itself."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from outpace.cli.remedies import command
from outpace.remedies import catalog
from outpace.remedies.base import Remedy
from tests.conftest import outpace


class Mute(Remedy):
    name = "mute"
    treats = ("parse",)
    keeps = "exact"
    advice_only = False


def test_a_remedy_without_a_docstring(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(catalog, "all_remedies", lambda: [Mute])
    assert command.main([], standalone_mode=False) == 0
    assert capsys.readouterr().out == "mute  exact\n"


def test_advice_is_nothing_to_try(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print('trains')\n")
    done = outpace("tune", "--only", "validate_less", "train.py", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "validate_less is advice" in done.stderr
    assert "hint: outpace remedies validate_less says what to change" in done.stderr


def test_a_reader_that_goes_away_is_no_failure() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "outpace", "remedies"]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")
