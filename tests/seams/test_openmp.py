"""Threads that sleep while they wait: enough teams are parked, none stays, no bit differs."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outpace.seams.openmp import ParkedTeams, teams_needed

SCRIPT = """
import os, time
import torch
from torch import nn
from outpace.seams.openmp import ParkedTeams, teams_needed

torch.set_num_threads(2)
tasks = lambda: len(os.listdir("/proc/self/task"))

def losses():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Dropout(0.1), nn.Linear(512, 1))
    optimizer = torch.optim.AdamW(model.parameters())
    values = []
    for step in range(5):
        x = torch.randn(512, 64)
        loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        values.append(loss.item())
    return values

plain = losses()
before = tasks()
for _ in range(3):
    parked = ParkedTeams(2)
    wanted = 2 * teams_needed(2, len(os.sched_getaffinity(0)))
    for _ in range(100):
        if tasks() - before == wanted:
            break
        time.sleep(0.05)
    held = tasks() - before
    asleep = losses()
    parked.end()
    for _ in range(100):
        if tasks() == before:
            break
        time.sleep(0.05)
    print(held == wanted, asleep == plain,
          tasks() == before)
"""


@given(threads=st.integers(2, 200), cores=st.integers(2, 200))
def test_just_enough_teams(threads: int, cores: int) -> None:
    """The first team counts its threads, each more one less; together they pass the cores."""
    teams = teams_needed(threads, cores)
    managed = threads + teams * (threads - 1)
    assert managed > cores
    assert teams == 0 or managed - (threads - 1) <= cores


@pytest.mark.parametrize(("threads", "cores"), [(1, 1), (1, 8), (4, 0), (2, 1)])
def test_nothing_to_park(threads: int, cores: int) -> None:
    assert teams_needed(threads, cores) == 0


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="needs Linux")
def test_teams_come_and_go(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:3] == ["True True True"] * 3


def test_a_script_may_wait_for_all_threads_that_it_knows() -> None:
    known, parked = threading.enumerate(), ParkedTeams(2)
    try:
        time.sleep(0.1)
        assert threading.enumerate() == known
    finally:
        parked.end()
