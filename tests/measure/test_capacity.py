"""The limit on memory that leaves a process the least."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from outpace.measure import capacity
from outpace.measure.counters import rss_bytes

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


def test_a_data_set_in_a_mapped_file_is_not_in_use(tmp_path: Path) -> None:
    """Its pages go again where memory is short."""
    status = Path("/proc/self/status")
    if not status.exists() or "RssFile" not in status.read_text():
        pytest.skip("this system does not tell files from the rest")
    path = tmp_path / "data.bin"
    path.write_bytes(bytes(1 << 25))
    before, resident = capacity.tightest("cpu"), rss_bytes()
    data = np.memmap(path, dtype=np.uint8, mode="r")
    assert int(data.sum(dtype=np.int64)) == 0
    assert (rss_bytes() or 0) - (resident or 0) > 1 << 24
    assert capacity.tightest("cpu").used - before.used < 1 << 23
