"""What leads to the newest session."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from outpace.cli.options import mark_latest, session_folder
from outpace.errors import SessionError


def test_two_sessions_of_one_second_have_a_folder_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folders = {session_folder(None, "train.py") for _ in range(3)}
    assert len(folders) == 3
    assert all(folder.is_dir() and folder.parent == Path(".outpace") for folder in folders)


def test_a_link_that_leads_nowhere_is_no_place_for_sessions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(".outpace").symlink_to("gone")
    with pytest.raises(SessionError, match=r"\.outpace/.* cannot be made: File exists") as told:
        session_folder(None, "train.py")
    assert told.value.hint == "--session names another"


def test_the_newest_session_takes_the_name(tmp_path: Path) -> None:
    sessions = tmp_path / ".outpace"
    for name in ("one", "two"):
        (sessions / name).mkdir(parents=True)
        mark_latest(sessions / name)
        assert (sessions / "latest").readlink() == Path(name)
    assert {path.name for path in sessions.iterdir()} == {"one", "two", "latest"}


def test_another_session_takes_it_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sessions = tmp_path / ".outpace"
    (sessions / "one").mkdir(parents=True)
    link = Path.symlink_to

    def late(path: Path, target: str) -> None:
        (sessions / "latest").unlink(missing_ok=True)
        os.symlink("two", sessions / "latest")
        link(path, target)

    monkeypatch.setattr(Path, "symlink_to", late)
    mark_latest(sessions / "one")
    assert (sessions / "latest").readlink() == Path("one")


def test_a_file_system_without_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sessions = tmp_path / ".outpace"
    (sessions / "one").mkdir(parents=True)

    def refused(path: Path, target: str) -> None:
        raise PermissionError(path)

    monkeypatch.setattr(Path, "symlink_to", refused)
    mark_latest(sessions / "one")
    assert {path.name for path in sessions.iterdir()} == {"one"}
