"""A run that is thrown away leaves nothing behind: no program, no temporary folder, no shared memory."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tests.conftest import outpace

BEGIN = """
    import os, subprocess, sys, tempfile
    import torch
    from multiprocessing.shared_memory import SharedMemory
    """

TRAINING = """
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for step in range(10**6):
        optimizer.zero_grad()
        model(torch.randn(8, 4)).square().mean().backward()
        optimizer.step()
    """

PROGRAMS = """
    folder = tempfile.TemporaryDirectory()
    server = subprocess.Popen(["sleep", "600"])
    shell = subprocess.Popen(["sh", "-c", "trap '' TERM; sleep 600; true"])
    print(folder.name, server.pid, shell.pid)
    """


def runs(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def test_programs_and_temporary_folders(script: Callable[..., Path], tmp_path: Path) -> None:
    """Where programs outlived it, what reads its output would wait for them too."""
    path = script(BEGIN + PROGRAMS + TRAINING)
    done = outpace("diagnose", "--steps", "5", str(path), cwd=tmp_path, timeout=100)
    assert done.returncode == 0, done.stderr
    folder, *pids = done.stdout.split()
    assert not Path(folder).exists()
    assert [pid for pid in map(int, pids) if runs(pid)] == []


SHARED = """
    shared = SharedMemory(create=True, size=4096)
    print(shared.name)
    """


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="shared memory is no folder here")
def test_shared_memory_is_freed(script: Callable[..., Path], tmp_path: Path) -> None:
    path = script(BEGIN + SHARED + TRAINING)
    done = outpace("diagnose", "--steps", "5", str(path), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    left = Path("/dev/shm") / done.stdout.strip()
    for _ in range(300):  # by a process that ends after the target's
        if not left.exists():
            break
        time.sleep(0.1)
    assert not left.exists()


FORK = """
    folder = tempfile.TemporaryDirectory()
    child = os.fork()
    if child == 0:
        from outpace.tune.ending import end_process
        end_process()
    os.waitpid(child, 0)
    print(os.path.isdir(folder.name))
    """


def test_a_fork_leaves_its_parents_folders(script: Callable[..., Path], tmp_path: Path) -> None:
    path = script(BEGIN + FORK)
    done = outpace("diagnose", str(path), cwd=tmp_path)
    assert done.stdout == "True\n"
