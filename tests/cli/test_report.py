"""``outpace report`` of sessions of either kind, and of what is none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from outpace.cli.report import command
from outpace.errors import SessionError
from outpace.records.files import write_json
from tests.conftest import outpace
from tests.report.report_sessions import images_diagnosed
from tests.report.report_trainings import reached


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_json(tmp_path / "trained" / "session.json", reached())
    write_json(tmp_path / "diagnosed" / "session.json", images_diagnosed())
    return tmp_path


@pytest.mark.parametrize(
    ("name", "said"),
    [("trained", "The target, accuracy 0.8, was reached"), ("diagnosed", "Where the time went")],
)
def test_on_the_terminal(
    folder: Path, name: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main([str(folder / name)], standalone_mode=False) == 0
    assert said in capsys.readouterr().out


def test_for_programs_and_by_default_the_newest(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / ".outpace").mkdir()
    (folder / ".outpace" / "latest").symlink_to(folder / "diagnosed")
    monkeypatch.chdir(folder)
    assert command.main(["--json"], standalone_mode=False) == 0
    told = capsys.readouterr().out
    assert json.loads(told) == json.loads((folder / "diagnosed" / "session.json").read_text())


@pytest.mark.parametrize("suffix", ["html", "md", "json"])
def test_as_a_file(folder: Path, suffix: str) -> None:
    path = folder / f"report.{suffix}"
    words = [str(folder / "trained"), "-o", str(path)]
    assert command.main(words, standalone_mode=False) == 0
    assert "reached" in path.read_text() or suffix == "json"
    if suffix == "json":
        assert path.read_text() == (folder / "trained" / "session.json").read_text()


def test_stdout_is_one_document_where_the_file_cannot_be_written(folder: Path) -> None:
    (folder / "mine.html").write_text("mine")
    for name, path in (("trained", "report.txt"), ("diagnosed", "mine.html")):
        done = outpace("report", "--json", name, "-o", path, cwd=folder)
        assert done.returncode == 2
        assert json.loads(done.stdout)["outcome"] == "error"
    assert (folder / "mine.html").read_text() == "mine"


def test_what_is_no_session(folder: Path) -> None:
    (folder / "session.json").write_text('{"schema": 1, "command": "plan"}')
    with pytest.raises(SessionError, match="is no session of outpace"):
        command.main([str(folder)], standalone_mode=False)
