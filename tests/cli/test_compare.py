"""``outpace compare`` on a stdout that lacks characters."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import msgspec
import pytest

from outpace.cli.compare import command
from outpace.records.files import write_json
from tests.report.report_sessions import images_diagnosed


@pytest.mark.parametrize("more", [[], ["--markdown"]])
@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_stdout_that_is_not_utf8(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encoding: str, more: list[str]
) -> None:
    before = images_diagnosed()
    after = msgspec.structs.replace(before, bound="none", cause=None, findings=())
    for name, session in (("a.json", before), ("b.json", after)):
        write_json(tmp_path / name, session)
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding=encoding))
    words = [str(tmp_path / "a.json"), str(tmp_path / "b.json"), *more]
    assert command.main(words, standalone_mode=False) == 0
    said = raw.getvalue().decode("ascii")
    assert "1.00x as fast" in said
    assert "!=" in said
