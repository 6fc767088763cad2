"""Other programs at work are seen, this one's own work is not taken for theirs."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from outpace.measure import others
from outpace.measure.others import Others, said
from outpace.tune.ranks import started

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")


@pytest.mark.skipif(others.cores_busy_s() is None, reason="who uses the cores is not told here")
def test_another_program_is_seen() -> None:
    alone = Others(list)
    hog = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        time.sleep(2.0)
        seen = alone.cores()
    finally:  # ended, it would be one of this process's own
        hog.kill()
        hog.wait()
    assert seen > 0.3
    assert "busy" in (said(seen) or "")


def test_own_work_is_not_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a clock of our own: 2 s of this process's, 2 s on all cores."""
    monkeypatch.setattr(others, "perf_counter", iter([0.0, 2.0, 2.0]).__next__)
    monkeypatch.setattr(others, "cores_busy_s", iter([10.0, 12.0, 12.0]).__next__)
    monkeypatch.setattr(others, "process_time_ns", iter([0, 2_000_000_000, 2_000_000_000]).__next__)
    measured = Others(list)
    assert measured.cores() == pytest.approx(0.0)
    assert said(0.0) is None


@linux
def test_processes_that_this_one_started_are_its_own() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        assert child.pid in started()
    finally:
        child.communicate(b"\n")
    assert child.pid not in started()
