"""Reading records: what is wrong with a file is told, and of another schema that it is one."""

from __future__ import annotations

from pathlib import Path

import pytest

from outpace.errors import SessionError
from outpace.records.files import read_json, replace_text, write_json, write_text
from outpace.records.session import Session
from tests.report.report_sessions import quiet


def test_a_byte_that_is_not_utf8(tmp_path: Path) -> None:
    path = tmp_path / "session.json"
    write_json(path, quiet())
    path.write_bytes(path.read_bytes().replace(b"train.py", b"tr\xffin.py"))
    with pytest.raises(SessionError, match=r"session\.json cannot be read"):
        read_json(path, Session)


def test_another_schema_is_told_as_one(tmp_path: Path) -> None:
    path = tmp_path / "session.json"
    path.write_text('{"schema": 2, "outcome": ["new"]}')
    with pytest.raises(SessionError, match="has schema 2; this outpace reads schema 1"):
        read_json(path, Session)


@pytest.mark.parametrize("text", ["", "[]", "3", '{"schema": "one"}', '{"schema": 1}'])
def test_no_session(tmp_path: Path, text: str) -> None:
    path = tmp_path / "session.json"
    path.write_text(text)
    with pytest.raises(SessionError, match=r"session\.json cannot be read"):
        read_json(path, Session)


def test_a_small_file_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "status.json"
    for text in ("first", "second"):
        replace_text(path, text)
        assert path.read_text() == text
    assert list(tmp_path.iterdir()) == [path]


def test_of_a_link_what_it_points_to_is_written(tmp_path: Path) -> None:
    shared, link = tmp_path / "shared.toml", tmp_path / "outpace.toml"
    shared.write_text("old")
    link.symlink_to(shared)
    write_text(link, "new")
    assert link.is_symlink()
    assert shared.read_text() == "new"
