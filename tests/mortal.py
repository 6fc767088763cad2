"""Lives in forks of one process that has imported torch, and their end by SIGKILL."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.conftest import ROOT

MOST_S = 120
"""that a life may take: one that hangs is told of"""


def kill_soon(seconds: float) -> None:
    """All processes of this group, workers included, in the midst of whatever they then do."""
    timer = threading.Timer(seconds, os.killpg, (0, signal.SIGKILL))
    timer.daemon = True
    timer.start()


def lived(live: Callable[[], None]) -> int:
    """A life in a process, and a group, of its own: 0 at its end, -9 where it was killed."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.setsid()
            signal.alarm(MOST_S)
            live()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def lives(module: str, folder: Path, kills: int, seconds: float) -> dict[str, Any]:
    """What a module that lives again and again tells of so many kills."""
    found = subprocess.run(
        [sys.executable, "-m", module, str(folder), str(kills), "0"],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=seconds,
    )
    assert found.returncode == 0, found.stderr
    told: dict[str, Any] = json.loads(found.stdout)
    assert told["kills"] >= kills
    return told
