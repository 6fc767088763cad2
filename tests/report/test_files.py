"""Writing reports: by suffix, whole or not at all, and never over a file that is not ours."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from outpace.errors import UsageError
from outpace.records.files import read_json
from outpace.records.session import Session
from outpace.report import is_report, write_report
from tests.report import report_sessions as made
from tests.report.report_trainings import trained


@pytest.mark.parametrize("name", ["report.html", "REPORT.HTM", "report.md", "report.json"])
def test_writes_and_replaces_its_own(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    write_report(made.images_tuned(), path)
    assert is_report(path)
    before = path.read_text("utf-8")
    write_report(made.images_diagnosed(), path)
    assert path.read_text("utf-8") != before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("name", ["report.html", "report.md", "report.json"])
@pytest.mark.parametrize("text", ["", "mine", '{"mine": 1}', "[1]", "{"])
def test_refuses_another_file_unless_forced(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(UsageError, match="not a report of outpace") as caught:
        write_report(made.quiet(), path)
    assert "--force" in (caught.value.hint or "")
    assert path.read_text() == text
    write_report(made.quiet(), path, force=True)
    assert is_report(path)


@pytest.mark.parametrize("name", ["report.html", "report.md", "report.json"])
def test_a_training_has_the_same_reports(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    write_report(trained(), str(path))
    assert is_report(path)
    assert "lsuv" in path.read_text("utf-8")
    write_report(made.quiet(), path)
    write_report(trained(), path)
    assert "lsuv" in path.read_text("utf-8")


def test_a_file_that_is_not_text_is_not_ours(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_bytes(b"\xff\xfe\x00")
    assert not is_report(path)


@pytest.mark.parametrize("name", ["report.pdf", "report", ".html"])
def test_another_suffix_is_a_usage_error(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="suffix") as caught:
        write_report(made.quiet(), tmp_path / name)
    assert ".html" in (caught.value.hint or "")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "a.html").mkdir()
    with pytest.raises(UsageError, match="is a folder"):
        write_report(made.quiet(), tmp_path / "a.html", force=True)


def test_json_reads_back_as_the_same_session(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    write_report(made.images_tuned(), path)
    assert read_json(path, Session) == made.images_tuned()


@pytest.mark.parametrize("suffix", ["html", "md", "json"])
def test_the_nastiest_session_can_be_written(tmp_path: Path, suffix: str) -> None:
    session = msgspec.structs.replace(made.nasty(), notes=("a lone \udc80 surrogate",))
    path = tmp_path / f"report.{suffix}"
    if suffix == "json":
        session = made.nasty()
    write_report(session, path)
    assert is_report(path)
    if suffix == "json":
        json.loads(path.read_text("utf-8"))
