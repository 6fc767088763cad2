"""Whether a process was stopped, or busy: by what a thread that looks at the clock meets."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.conftest import plainly

from outpace.measure.stops import EVERY_S, Stops, stood_still

SCRIPT = """
import os, subprocess, sys, time
from outpace.measure.stops import Stops

stops = Stops()
time.sleep(0.3)
if sys.argv[1] == "stopped":
    me = os.getpid()
    other = subprocess.Popen(["sh", "-c", f"kill -STOP {me}; sleep 3; kill -CONT {me}"])
    other.wait()
elif sys.argv[1] == "asleep":
    time.sleep(3)
else:
    import ctypes
    ctypes.PyDLL(None).sleep(3)
print(stops.take(), stops.take())
"""


def test_a_thread_that_is_late_was_stopped_or_kept_waiting() -> None:
    assert stood_still(0.1, 1, 0.005) == 0.0
    assert stood_still(0.9, 1, 0.005) == 0.0
    assert stood_still(30.1, 1, 0.005) == pytest.approx(30.0, abs=0.1)
    # Others held the interpreter: it was asked for every five milliseconds, or nearly so.
    assert stood_still(30.1, 6000, 0.005) == 0.0
    assert stood_still(30.1, 2000, 0.005) == 0.0


@pytest.mark.skipif(sys.platform != "linux", reason="waits of a thread are told by Linux only")
@pytest.mark.parametrize("how", ["stopped", pytest.param("asleep", marks=pytest.mark.slow), "held"])
def test_a_process_that_is_stopped(script: Callable[[str], Path], how: str) -> None:
    done = plainly(script(SCRIPT), [how])
    assert done.returncode == 0, done.stderr
    first, second = map(float, done.stdout.split())
    assert (first > 0) == (how == "stopped")
    assert second == 0


def test_a_script_may_wait_for_all_threads_that_it_knows() -> None:
    known, stops = threading.enumerate(), Stops()
    time.sleep(2 * EVERY_S)
    assert threading.enumerate() == known
    assert stops.take() == 0
