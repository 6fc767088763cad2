"""Time left, while processes stop and clocks are set."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from outpace.plan import countdown
from outpace.plan.countdown import Countdown, began_here, boot_id, since_boot


class Clocks:
    """A boot clock and a calendar that the test sets."""

    def __init__(self) -> None:
        self.boot, self.calendar = 500.0, 1_700_000_000.0

    def go_on(self, seconds: float) -> None:
        self.boot += seconds
        self.calendar += seconds

    def countdown(self, *, seconds: float | None = None, at: float | None = None) -> Countdown:
        return Countdown(
            self.boot, seconds=seconds, at=at, now=lambda: self.boot, wall=lambda: self.calendar
        )


def test_a_duration_does_not_mind_that_the_calendar_is_set() -> None:
    clocks = Clocks()
    left = clocks.countdown(seconds=100.0)
    clocks.go_on(30.0)
    clocks.calendar += 3600.0
    assert (left.elapsed(), left.left()) == (30.0, 70.0)


def test_a_time_of_day_moves_with_the_calendar() -> None:
    clocks = Clocks()
    left = clocks.countdown(at=clocks.calendar + 100.0)
    clocks.go_on(30.0)
    assert (left.elapsed(), left.left()) == (30.0, 70.0)
    clocks.calendar += 20.0
    assert (left.elapsed(), left.left()) == (30.0, 50.0)


def test_processes_share_the_clock() -> None:
    here = since_boot()
    told = subprocess.run(
        [sys.executable, "-c", "from outpace.plan.countdown import since_boot as s; print(s())"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert here < float(told.stdout) < since_boot()


def test_a_system_without_a_clock_since_boot(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python's monotonic clock may stand still while the machine sleeps: on macOS it does."""
    monkeypatch.delattr(time, "CLOCK_BOOTTIME", raising=False)
    monkeypatch.setattr(time, "monotonic", lambda: -1.0)
    assert since_boot() > 0


def test_it_goes_on_while_the_process_is_stopped() -> None:
    code = (
        "import os, signal; from outpace.plan.countdown import Countdown, since_boot\n"
        "left = Countdown(since_boot(), seconds=60.0)\n"
        "os.kill(os.getpid(), signal.SIGSTOP)\n"
        "print(left.elapsed())"
    )
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    os.waitpid(child.pid, os.WUNTRACED)
    time.sleep(0.3)
    child.send_signal(signal.SIGCONT)
    assert child.stdout is not None
    assert float(child.stdout.read()) >= 0.3


def test_a_begin_on_another_machine_is_taken_by_the_calendar(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """This one was started 500 s ago, that one a year; the training began 20 s ago."""
    monkeypatch.setattr(countdown, "since_boot", lambda: 500.0)
    monkeypatch.setattr(time, "time", lambda: 1_700_000_020.0)
    assert began_here(3e7, "of another", 1_700_000_000.0) == 480.0
    assert began_here(480.5, boot_id(), 1_700_000_000.0) == 480.5
