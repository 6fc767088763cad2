"""The picture of a session under way."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from outpace.records.gain import Gain
from outpace.report.live import Seen, newest, of_experiments, picture


def shown(seen: Seen | None, losses: list[float] | None = None, silent_s: float = 0.0) -> str:
    console = Console(width=100, color_system=None)
    with console.capture() as captured:
        console.print(picture(".outpace/x", seen, losses or [], silent_s))
    return captured.get()


def test_a_phase_its_gains_and_its_losses() -> None:
    gains = {"batch_double": Gain(0.5, 0.45, 0.55, "measured")}
    text = shown(Seen("experiments", 0.5, "compute, round 3", gains), [2.0, 1.0])
    assert " 50 %  compute, round 3" in text
    assert "twice the batch" in text
    assert "0.50× (0.45–0.55)" in text
    assert "█▁  2 → 1" in text
    assert "nothing new" not in text


def test_silence_is_told() -> None:
    assert "nothing new for 40 s" in shown(Seen("trials", 0.1), silent_s=40)
    assert "nothing was told yet" in shown(None)


def test_a_process_that_measures_is_read() -> None:
    told = {"phase": "p", "done": 3, "total": 2, "note": "n", "gains": {"bf16": [2, 1, 3]}}
    seen = of_experiments(told)
    assert seen == Seen("p", 1.0, "n", {"bf16": Gain(2, 1, 3, "measured")})
    assert of_experiments({**told, "total": 0}).share == 0


def test_folders_that_go_meanwhile_are_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a run that is thrown away."""
    (tmp_path / "run" / "inside").mkdir(parents=True)
    (tmp_path / "progress.json").write_text("{}")
    scandir = os.scandir

    def goes(path: Any) -> Any:
        if str(path).endswith("run"):
            monkeypatch.setattr(os, "scandir", scandir)
            shutil.rmtree(path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", goes)
    found = newest(tmp_path)
    assert found is not None
    assert found[0] == tmp_path / "progress.json"


def test_what_the_target_writes_is_not_taken_for_ours(tmp_path: Path) -> None:
    ours = tmp_path / "s" / "progress.json"
    its_own = tmp_path / "s" / "scratch" / "home" / "progress.json"
    for path, when in ((ours, 100), (its_own, 200)):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}")
        os.utime(path, (when, when))
    assert newest(tmp_path) == (ours, 100)
