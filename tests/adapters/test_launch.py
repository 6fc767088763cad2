"""What is told of a target's processes."""

from __future__ import annotations

import subprocess
import sys

import psutil

from outpace.adapters.launch import cpu_s_of


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
