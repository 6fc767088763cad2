"""What a diagnosis leaves behind."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

from outpace.adapters import work
from outpace.api import diagnosing
from outpace.records.machine import Ceilings
from outpace.records.target import Target
from outpace.tune import measuring
from outpace.tune.children import Measured
from outpace.tune.files import TRACE, write
from tests.remedies.some_evidence import IMAGES


def test_a_disk_that_is_full_at_the_end_loses_nothing_that_was_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(work, "ceilings", lambda *_: Ceilings())
    monkeypatch.setattr(diagnosing, "measure", lambda *_, **__: (IMAGES, 0, []))
    monkeypatch.setattr(diagnosing, "write_json", full)
    target = Target("script", "train.py", (), str(tmp_path))
    found = diagnosing.diagnose(target, session=tmp_path / "s")
    assert found.steps.count == IMAGES.steps.count
    assert found.notes[-1].startswith("the session cannot be kept in ")
    assert found.notes[-1].endswith("No space left on device")


def test_a_trace_that_cannot_be_written_costs_no_diagnosis(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measured(_: Any, __: Any, folder: Path) -> Measured:
        write(folder / TRACE, [["step 1", 0, 1000]])
        return Measured(IMAGES, 0, [])

    monkeypatch.setattr(work, "ceilings", lambda *_: Ceilings())
    monkeypatch.setattr(measuring, "measure", measured)
    (tmp_path / "file").touch()
    target = Target("script", "train.py", (), str(tmp_path))
    trace = tmp_path / "file" / "t.json"
    found = diagnosing.diagnose(target, session=tmp_path / "s", trace=trace)
    assert found.steps.count == IMAGES.steps.count
    assert found.notes[-1].startswith(f"{trace} cannot be written: ")
