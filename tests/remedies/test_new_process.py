"""Remedies that only a new process can take: the variables are set, and no bit differs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from outpace.remedies.allocator import Allocator, installed
from outpace.remedies.wait_policy import VARIABLES, WaitPolicy
from outpace.seams.setup import AS_IS, Setup
from tests.remedies.some_evidence import CROWDED, IMAGES

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
print(os.environ.get("OMP_WAIT_POLICY"), os.environ.get("LD_PRELOAD"))
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


def test_a_wait_policy_keeps_every_bit(tmp_path: Path) -> None:
    plain = run(tmp_path / "train.py", AS_IS)
    passive = run(tmp_path / "train.py", WaitPolicy().setup(AS_IS, {}))
    assert passive[:5] == plain[:5]
    assert passive[5].startswith("passive")


@pytest.mark.skipif(not installed(), reason="neither jemalloc nor tcmalloc is installed")
def test_an_allocator_keeps_every_bit(tmp_path: Path) -> None:
    plain = run(tmp_path / "train.py", AS_IS)
    other = run(tmp_path / "train.py", Allocator().setup(AS_IS, {"library": installed()}))
    assert other[:5] == plain[:5]
    assert installed() in other[5]


def test_variables_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_PRELOAD", "libother.so:libjemalloc.so.2")
    setup = Allocator().setup(WaitPolicy().setup(AS_IS, {}), {"library": "libjemalloc.so.2"})
    variables = dict(setup.environment)
    assert variables["LD_PRELOAD"] == "libjemalloc.so.2:libother.so"
    assert set(VARIABLES) < set(setup.environment)
    assert not setup.in_process
    assert list(setup.environment) == sorted(setup.environment)


def test_waiting_is_predicted_to_pay_only_beside_something() -> None:
    from outpace.remedies.prefetch import Prefetch

    remedy = WaitPolicy()
    two = msgspec.structs.replace(
        IMAGES, compute=msgspec.structs.replace(IMAGES.compute, threads=2)
    )
    alone = remedy.predict(two)
    beside = remedy.predict(two, None, Prefetch().setup(AS_IS, {"batches": 3}))
    assert alone.speedup < 1.0 < beside.speedup
    assert remedy.predict(CROWDED).speedup > 1.0
