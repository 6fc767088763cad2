"""Counters tell what a process did, and None where nobody can."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from outpace.measure import counters

linux = pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="needs Linux's /proc")


def burn(seconds: float) -> None:
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


@linux
def test_own_cpu_time_is_the_same_by_every_way() -> None:
    burn(0.05)
    own = time.process_time_ns()
    assert own > 50_000_000
    assert counters.cpu_ns(os.getpid()) == pytest.approx(own, abs=20_000_000)
    assert counters._cpu_ns_from_proc(os.getpid()) == pytest.approx(own, abs=50_000_000)


@linux
def test_cpu_time_of_a_child_is_told_until_it_is_gone() -> None:
    code = "import time\nwhile time.process_time() < 0.2: pass\nprint(1, flush=True)\ninput()"
    child = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert child.stdout is not None
    child.stdout.readline()
    spent = counters.cpu_ns(child.pid)
    assert spent is not None
    assert 200_000_000 <= spent < 2_000_000_000
    child.communicate(b"\n")
    assert counters.cpu_ns(child.pid) is None


@pytest.mark.skipif(counters.disk_waits_s() is None, reason="the kernel does not tell of waiting")
def test_waiting_for_disks_and_bytes_from_them_only_grow(tmp_path: Path) -> None:
    waits, read = counters.disk_waits_s(), counters.disk_read_bytes()
    with (tmp_path / "written").open("wb") as file:
        file.write(os.urandom(2**22))
        file.flush()
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    (tmp_path / "written").read_bytes()
    waits_now, read_now = counters.disk_waits_s(), counters.disk_read_bytes()
    assert waits is not None
    assert waits_now is not None
    assert waits_now >= waits >= 0.0
    assert read is not None
    assert read_now is not None
    assert read_now >= read > 0


@linux
def test_resident_memory_follows_what_is_touched() -> None:
    before = counters.rss_bytes()
    block = b"x" * 50_000_000
    after = counters.rss_bytes()
    assert before is not None
    assert after is not None
    assert after - before > 40_000_000
    del block


@linux
def test_a_mapped_file_is_not_memory_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "data.bin"
    path.write_bytes(b"x" * (1 << 25))
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        own, resident = counters.own_bytes(), counters.rss_bytes()
        assert sum(mapped[:: mmap.PAGESIZE]) > 0
        assert counters.rss_bytes() - resident > 1 << 24
        assert counters.own_bytes() - own < 1 << 22


@linux
def test_a_mapped_file_is_not_held(tmp_path: Path) -> None:
    """Memory that is shared with other processes is."""
    if "RssFile" not in Path("/proc/self/status").read_text():
        pytest.skip("this kernel does not tell")
    path = tmp_path / "data.bin"
    path.write_bytes(b"x" * (1 << 25))
    held = counters.held_bytes()
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        assert sum(mapped[:: mmap.PAGESIZE]) > 0
        assert counters.held_bytes() - held < 1 << 22
    with mmap.mmap(-1, 1 << 25) as shared:
        shared.write(b"x" * (1 << 25))
        assert counters.held_bytes() - held > 1 << 24


@linux
def test_who_uses_the_cores_is_not_told_under_a_quota(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are all of the host's then: what its other containers do would be taken for a program here."""
    cores = len(os.sched_getaffinity(0))
    monkeypatch.setattr(counters, "usable_cores", lambda: cores)
    assert (counters.cores_busy_s() or 0.0) > 0.0
    monkeypatch.setattr(counters, "usable_cores", lambda: cores - 1)
    assert counters.cores_busy_s() is None


def test_unknown_processes_are_none() -> None:
    assert counters.cpu_ns(2**22 + 1) is None
    assert counters.cpu_ns(-1) is None
    assert counters.rss_bytes(2**22 + 1) is None


@linux
def test_fresh_memory_is_counted_in_pages() -> None:
    before, system = counters.page_faults(), counters.system_s()
    with mmap.mmap(-1, 1 << 24) as taken:
        taken.write(b"x" * (1 << 24))
        pages = counters.page_faults() - before
    assert pages >= (1 << 24) // mmap.PAGESIZE * 0.9 or _huge_pages()
    assert counters.system_s() >= system


def _huge_pages() -> bool:
    path = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    return path.exists() and "[always]" in path.read_text()


@pytest.mark.parametrize(("cores", "wanted"), [(2, 24), (16, 192), (64, 260)])
def test_of_a_sockets_cache_its_cores_share_counts(
    cores: int, wanted: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A virtual machine is told all of it."""
    for level, size in enumerate((48, 2048, 260 * 1024)):
        (tmp_path / f"index{level}").mkdir()
        (tmp_path / f"index{level}/size").write_text(f"{size}K\n")
    monkeypatch.setattr(counters, "CACHES", tmp_path)
    monkeypatch.setattr(counters, "usable_cores", lambda: cores)
    assert counters.last_level_cache.__wrapped__() == wanted * 2**20
