"""A process that tells nothing for long hangs; one that is stopped with us does not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from outpace.tune import silence
from outpace.tune.files import MARKER, PROGRESS, STATUS, tell, write
from outpace.tune.silence import ASKED_S, Silence, hung, patience


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(silence, "monotonic", lambda: self.now)

    def wait(self, looked: Silence, ticks: int, tick_s: float = 0.2) -> float:
        for _ in range(ticks):
            self.now += tick_s
            seconds = looked.look()
        return seconds


@pytest.mark.parametrize("name", [STATUS, PROGRESS, MARKER])
def test_whatever_is_told_ends_a_silence(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / name, {"arm": "as_is"})
    os.utime(tmp_path / name, (50, 50))
    clock, looked = Clock(monkeypatch), Silence(tmp_path, lambda: 0.0)
    assert clock.wait(looked, 500) == pytest.approx(100)
    write(tmp_path / name, {"arm": "as_is"})
    assert clock.wait(looked, 1) == 0
    assert clock.wait(looked, 10) == pytest.approx(2)


def test_a_file_that_comes_ends_a_silence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, looked = Clock(monkeypatch), Silence(tmp_path, lambda: 0.0)
    assert clock.wait(looked, 10) == pytest.approx(2)
    tell(tmp_path, phase="trials", done=1.0, total=2.0, note="")
    assert clock.wait(looked, 1) == 0


def test_while_we_are_stopped_nobody_is_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-Z stops the target too."""
    clock, looked = Clock(monkeypatch), Silence(tmp_path, lambda: 0.0)
    assert clock.wait(looked, 1, tick_s=3600.0) == pytest.approx(1)


def test_who_computes_is_not_silent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one that evaluates, or compiles, for minutes."""
    clock = Clock(monkeypatch)
    looked = Silence(tmp_path, lambda: clock.now / 2)
    assert clock.wait(looked, 5000) < 2 * ASKED_S
    idle = Silence(tmp_path, lambda: clock.now / 100)
    assert clock.wait(idle, 500) == pytest.approx(100)


def test_patience_is_for_more_than_what_is_expected() -> None:
    assert patience(0.0) == 60
    assert patience(100.0) == 360


def test_how_long_a_process_hung_is_told(tmp_path: Path) -> None:
    assert hung(tmp_path) == ""
    write(tmp_path / STATUS, {"finished": False})
    assert hung(tmp_path) == ""
    write(tmp_path / STATUS, {"finished": False, "hung": 90.2})
    assert hung(tmp_path) == "hung for 1m30s"
