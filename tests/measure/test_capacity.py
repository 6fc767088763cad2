"""The limit on memory that leaves a process the least."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from outpace.measure import capacity

LIMITED = """
import json, resource
import torch
from outpace.measure.capacity import tightest

before = tightest("cpu")
resource.setrlimit(resource.RLIMIT_DATA, (3 << 30, resource.RLIM_INFINITY))
limited = tightest("cpu")
held = torch.ones(1 << 27)
print(json.dumps([before, limited, tightest("cpu")]))
"""


def test_a_limit_of_the_process_counts() -> None:
    done = subprocess.run([sys.executable, "-c", LIMITED], capture_output=True, check=True)
    before, limited, holding = json.loads(done.stdout)
    assert before[0] != 3 << 30
    assert limited[0] == holding[0] == 3 << 30
    assert holding[1] - limited[1] == pytest.approx(4 << 27, rel=0.05)


def test_the_machine_where_nothing_else_is_known(tmp_path: Path) -> None:
    limit = capacity.tightest("cpu", tmp_path / "status")
    assert limit.bytes == capacity.memory_limit()
    assert 0 < limit.used < limit.bytes
