"""Remedies that only a new process can take: the variables are set, and no bit differs."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from outpace.remedies.allocator import Allocator, installed
from outpace.seams.setup import AS_IS, Setup

SCRIPT = """
import os
import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(2)
model = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Dropout(0.1), nn.Linear(512, 1))
optimizer = torch.optim.AdamW(model.parameters())
for step in range(5):
    x = torch.randn(256, 64)
    loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item().hex())
print(os.environ.get("LD_PRELOAD"))
"""


def run(path: Path, setup: Setup) -> list[str]:
    path.write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, str(path)],
        env={**os.environ, **dict(setup.environment)},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split("\n")


@pytest.mark.skipif(not installed(), reason="neither jemalloc nor tcmalloc is installed")
def test_an_allocator_keeps_every_bit(tmp_path: Path) -> None:
    plain = run(tmp_path / "train.py", AS_IS)
    other = run(tmp_path / "train.py", Allocator().setup(AS_IS, {"library": installed()}))
    assert other[:5] == plain[:5]
    assert installed() in other[5]


def test_variables_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_PRELOAD", "libother.so:libjemalloc.so.2")
    base = replace(AS_IS, environment=(("ZEBRA", "1"),))
    setup = Allocator().setup(base, {"library": "libjemalloc.so.2"})
    assert setup.environment == (
        ("LD_PRELOAD", "libjemalloc.so.2:libother.so"),
        ("ZEBRA", "1"),
    )
    assert not setup.in_process
