"""Workers that come to own the memory that they only read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from outpace.measure import workers
from outpace.measure.workers import WorkerMemory, private_bytes

MIB = 1 << 20


@pytest.fixture
def owned(monkeypatch: pytest.MonkeyPatch) -> dict[int, int]:
    """MiB that each process owns, as the system tells."""
    found: dict[int, int] = {}
    monkeypatch.setattr(workers, "private_bytes", lambda pid: found[pid] * MIB)
    return found


def grown(owned: dict[int, int], looks: list[int]) -> float:
    memory = WorkerMemory(lambda: list(owned))
    for index, mib in enumerate(looks):
        owned.update({7: mib, 8: 50})
        memory.look(10 * index)
    return memory.growth()


def test_a_growth(owned: dict[int, int]) -> None:
    assert grown(owned, [50, 60, 70, 80, 90]) == pytest.approx(MIB)


@pytest.mark.parametrize(
    "looks", [[50, 90], [50, 90, 90, 90], [50, 51, 51, 90], [50, 52, 54, 56], [90, 70, 50, 30]]
)
def test_no_growth(owned: dict[int, int], looks: list[int]) -> None:
    """Too few looks; what filled up at first, or came at once; too little; less."""
    assert grown(owned, looks) == 0.0


def test_new_workers_begin_anew(owned: dict[int, int]) -> None:
    memory = WorkerMemory(lambda: list(owned))
    for index, pid in enumerate([7, 7, 7, 9, 9]):
        owned.clear()
        owned[pid] = 50 + 20 * index
        memory.look(index)
    assert memory.growth() == 0.0
    assert len(memory.looks) == 2


def test_what_the_system_tells(tmp_path: Path) -> None:
    if not Path("/proc/self/smaps_rollup").exists():
        pytest.skip("this system does not tell")
    before = private_bytes(os.getpid())
    block = bytearray(os.urandom(1)) * (64 * MIB)
    after = private_bytes(os.getpid())
    assert before is not None
    assert after is not None
    assert after - before > 0.9 * len(block)
    assert private_bytes(1, tmp_path) is None
