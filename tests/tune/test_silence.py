"""A process that tells nothing for long hangs; one that is stopped with us does not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from outpace.tune import silence
from outpace.tune.files import MARKER, PROGRESS, STATUS, tell, write
from outpace.tune.silence import ASKED_S, Silence, cpu_s_of, hung, patience


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


def test_cpu_time_is_that_of_all_processes_below_one() -> None:
    spin = "import time\nwhile time.process_time() < 0.3: pass\nprint('spun', flush=True)\ntime.sleep(60)"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {spin!r}])"
    with subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"spun\n"
        assert cpu_s_of(child.pid) >= 0.3
        for each in psutil.Process(child.pid).children():
            each.kill()
        child.wait()
    assert cpu_s_of(child.pid) == 0.0


def test_patience_is_for_more_than_what_is_expected() -> None:
    assert patience(0.0) == 60
    assert patience(100.0) == 360


def test_how_long_a_process_hung_is_told(tmp_path: Path) -> None:
    assert hung(tmp_path) == ""
    write(tmp_path / STATUS, {"finished": False})
    assert hung(tmp_path) == ""
    write(tmp_path / STATUS, {"finished": False, "hung": 90.2})
    assert hung(tmp_path) == "hung for 1m30s"
