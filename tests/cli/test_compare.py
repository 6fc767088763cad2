"""``outpace compare`` on a stdout that lacks characters."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import msgspec
import pytest

from outpace.cli.compare import command
from outpace.errors import UsageError
from outpace.records.files import write_json
from tests.report.report_sessions import images_diagnosed
from tests.report.report_trainings import missed, reached


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


def test_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = images_diagnosed()
    steps = msgspec.structs.replace(before.steps, median_s=before.steps.median_s / 2)
    for name, session in (
        ("a.json", before),
        ("b.json", msgspec.structs.replace(before, steps=steps)),
    ):
        write_json(tmp_path / name, session)
    words = [str(tmp_path / "a.json"), str(tmp_path / "b.json"), "--json"]
    assert command.main(words, standalone_mode=False) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["schema"], document["command"]) == (1, "compare")
    assert document["headline"].endswith("2.00× as fast.")
    (wall,) = (line for line in document["changes"]["step"] if line["name"] == "wall time")
    assert wall["change"] == "2.00× as fast"
    assert document["remarks"]


def test_two_trainings_and_a_training_with_another_session(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = {"a.json": reached(), "b.json": missed(), "c.json": images_diagnosed()}
    for name, session in kept.items():
        write_json(tmp_path / name, session)
    words = [str(tmp_path / name) for name in ("a.json", "b.json")]
    assert command.main(words, standalone_mode=False) == 0
    assert "not reached" in capsys.readouterr().out
    words = [str(tmp_path / name) for name in ("b.json", "c.json")]
    with pytest.raises(UsageError, match="the first session is a training"):
        command.main(words, standalone_mode=False)
