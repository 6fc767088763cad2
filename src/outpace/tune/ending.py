"""Ending a process whose results are thrown away, once all that is wanted of it was measured.

Its programs and temporary folders would outlive it, and the next run would meet them: a port in use, a
full disk. They are ended and removed here. What the script itself does at its end is left out, its
``finally`` and its atexit functions: they are meant for a training that is complete, and may save it, send
it somewhere or wait for others.

Limits: a program that has made itself a daemon is not found, and a temporary folder only where it is a
`tempfile.TemporaryDirectory`.
"""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import signal
import sys
import tempfile
import time
from typing import NoReturn

ASKED_S = 1.0
"""time that programs have to end by themselves"""
COMMAND_S = 2.0
"""time that our parent has to end the command that this process is a part of"""
CUT_OFF = 128 + 15
"""exit code of a process that is a part of a command: what it calls success is followed by other parts"""
ENDS_ALONE = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")
"""processes that end with this one, the tracker once it has freed the shared memory that is left over"""
TARGET = os.getpid()


def end_process(*, in_command: bool = False) -> NoReturn:
    """End it here and now, with the programs that it started; what it printed is kept.

    ``in_command``: parts of a command that follow this process are not to run. It waits for our parent to
    end them all, and else ends with an exit code at which ``&&`` and ``set -e`` stop; not so a rank, whose
    launcher would tell of it as of a failure.
    """
    with contextlib.suppress(Exception):
        sys.stdout.flush()
        sys.stderr.flush()
    workers = multiprocessing.active_children()
    with contextlib.suppress(Exception):
        end_programs({worker.pid for worker in workers})
    if os.getpid() == TARGET:  # a fork has its parent's folders in hand too
        remove_folders()
    if in_command:
        with contextlib.suppress(ValueError):  # a script may save at SIGTERM, and go on
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        time.sleep(COMMAND_S)
    # Last: torch raises an error in the script where workers are killed.
    for worker in workers:
        worker.kill()
    os._exit(CUT_OFF if in_command and "RANK" not in os.environ else 0)


def end_programs(apart: set[int | None]) -> None:
    """End all processes beneath this one but those ``apart``: asked first, killed after."""
    import psutil

    programs = []
    for each in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            alone = any(name in word for word in each.cmdline() for name in ENDS_ALONE)
            if each.pid not in apart and not alone:
                each.terminate()
                programs.append(each)
    _, alive = psutil.wait_procs(programs, timeout=ASKED_S)
    for each in alive:
        with contextlib.suppress(psutil.Error):
            each.kill()


def remove_folders() -> None:
    """Remove the temporary folders that the script holds."""
    for each in gc.get_objects():
        if type(each) is tempfile.TemporaryDirectory:
            with contextlib.suppress(Exception):
                each.cleanup()
