"""What leads to the newest session."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from outpace.cli.options import mark_latest


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
