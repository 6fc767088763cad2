"""What a training waited for a disk, by counters that the test sets."""

from __future__ import annotations

import math

import pytest

from outpace.plan import first_reads
from outpace.plan.first_reads import KEPT, FirstReads

GIB = 2**30


class Machine:
    """Its clock, the time that this thread ran, its counters of disks, and its free memory."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = self.ran = 0.0
        self.waited: float | None = 100.0
        self.read: int | None = 50 * GIB
        monkeypatch.setattr(first_reads, "disk_waits_s", lambda: self.waited)
        monkeypatch.setattr(first_reads, "disk_read_bytes", lambda: self.read)
        monkeypatch.setattr(first_reads, "free_memory", lambda: 8 * GIB)
        monkeypatch.setattr(first_reads.time, "perf_counter", lambda: self.now)
        monkeypatch.setattr(first_reads.time, "thread_time", lambda: self.ran)

    def passes(self, seconds: float, *, ran: float, waited: float, read: int = 0) -> None:
        self.now += seconds
        self.ran += ran
        assert self.waited is not None
        assert self.read is not None
        self.waited += waited
        self.read += read


def test_waiting_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch)
    reads = FirstReads()
    assert reads.take() == 0.0
    machine.passes(1.4, ran=0.9, waited=0.4, read=GIB)
    assert reads.take() == pytest.approx(0.4)
    assert reads.take() == 0.0
    machine.passes(1.0, ran=1.0, waited=0.0)
    assert reads.take() == 0.0


def test_others_wait_for_disks_too(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch)
    reads = FirstReads()
    machine.passes(1.0, ran=0.9, waited=1.0)
    assert reads.take() == pytest.approx(0.1)
    machine.passes(1.0, ran=1.1, waited=1.0)  # clocks of two kinds
    assert reads.take() == 0.0


def test_what_memory_may_not_keep_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch)
    reads = FirstReads()
    machine.passes(1.0, ran=0.1, waited=0.5, read=math.ceil(KEPT * 8 * GIB) - 1)
    assert reads.take() == pytest.approx(0.5)
    machine.passes(1.0, ran=0.1, waited=0.5, read=1)
    assert reads.take() == 0.0


@pytest.mark.parametrize("lacks", ["waited", "read"])
def test_where_the_system_does_not_tell(lacks: str, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch)
    setattr(machine, lacks, None)
    reads = FirstReads()
    machine.now += 1.0
    if machine.waited is not None:
        machine.waited += 0.5
    assert reads.take() == 0.0
