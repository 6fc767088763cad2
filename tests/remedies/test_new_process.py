"""Remedies that only a new process can take: the variables are set, and no bit differs."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from outpace.remedies.allocator import Allocator, installed
from outpace.seams.setup import AS_IS, Setup
from tests.remedies.some_evidence import IMAGES

SCRIPT = """
import os
import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)  # two do not give the same bits each time on every processor
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


def run(path: Path, setup: Setup, script: str = SCRIPT) -> list[str]:
    path.write_text(script)
    done = subprocess.run(
        [sys.executable, str(path)],
        env={**os.environ, **dict(setup.environment)},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split("\n")


FAULTS = """
import resource
import torch
pages = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_minflt
before = pages()
for _ in range(60):
    kept = [torch.ones(2**18) for _ in range(20)]
    del kept
print(pages() - before)
"""


def test_kept_memory_keeps_every_bit_and_less_is_taken_from_the_system(tmp_path: Path) -> None:
    """Blocks of a megabyte, taken and given back by turns with larger ones."""
    kept = Allocator().setup(AS_IS, {"malloc": "keep"})
    plain, other = (run(tmp_path / "train.py", setup, FAULTS + SCRIPT) for setup in (AS_IS, kept))
    assert int(other[0]) < 0.8 * int(plain[0])
    assert other[1:6] == plain[1:6]


def test_page_faults_are_what_it_is_predicted_by() -> None:
    replace_in = msgspec.structs.replace
    none = replace_in(IMAGES, compute=replace_in(IMAGES.compute, page_faults=0.0))
    assert not Allocator().applies(none).yes
    assert Allocator().predict(none).speedup == 1.0
    assert Allocator().predict(IMAGES).speedup > 1.02


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
