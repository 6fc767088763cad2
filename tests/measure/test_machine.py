"""A machine is what this process may use of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
import torch

from outpace.measure import machine
from outpace.records.machine import Accelerator

GIB = 1024**3


def write(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write(tmp_path, "proc/meminfo", f"MemTotal: {64 * 1024 * 1024} kB\nMemFree: 1 kB\n")
    write(tmp_path, "proc/cpuinfo", "processor : 0\nmodel name : Big CPU @ 2 GHz\n")
    return tmp_path


@pytest.fixture
def many_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(32)), raising=False)


@pytest.mark.usefixtures("many_cores")
def test_without_control_groups_all_is_ours(root: Path) -> None:
    assert machine.usable_cores(root) == 32
    assert machine.memory_limit(root) == 64 * GIB
    assert machine.cpu_model(root) == "Big CPU @ 2 GHz"


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ("fma avx avx2", " (AVX2)"),
        ("avx2 avx512f avx512_bf16", " (AVX-512, bfloat16)"),
        ("sse", ""),
    ],
)
def test_processors_of_one_name_are_told_apart(flags: str, said: str, root: Path) -> None:
    first = f"processor : 0\nmodel name : Big CPU\nflags : {flags}\n"
    write(root, "proc/cpuinfo", f"{first}\nprocessor : 1\nmodel name : Small CPU\nflags : avx2\n")
    assert machine.cpu_model(root) == f"Big CPU{said}"


@pytest.mark.usefixtures("many_cores")
def test_version_two_limits_hold_at_every_level(root: Path) -> None:
    write(root, "proc/self/cgroup", "0::/pod/task\n")
    write(root, "sys/fs/cgroup/pod/cpu.max", "350000 100000\n")
    write(root, "sys/fs/cgroup/pod/task/cpu.max", "max 100000\n")
    write(root, "sys/fs/cgroup/pod/task/memory.max", f"{8 * GIB}\n")
    write(root, "sys/fs/cgroup/pod/memory.max", "max\n")
    assert machine.usable_cores(root) == 3
    assert machine.memory_limit(root) == 8 * GIB


def test_free_is_what_the_limit_leaves(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    used = psutil.Process().memory_info().rss
    plenty = psutil.virtual_memory()._replace(available=60 * GIB)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: plenty)
    assert 50 * GIB < machine.free_memory(root) <= 60 * GIB
    write(root, "proc/self/cgroup", "0::/\n")
    write(root, "sys/fs/cgroup/memory.max", f"{used + GIB}\n")
    assert machine.free_memory(root) < 1.5 * GIB
    monkeypatch.setattr(psutil, "virtual_memory", lambda: plenty._replace(available=1000))
    assert machine.free_memory(root) == 1000


def test_what_others_of_a_group_take_is_not_free(root: Path) -> None:
    write(root, "proc/self/cgroup", "0::/\n")
    write(root, "sys/fs/cgroup/memory.max", f"{8 * GIB}\n")
    write(root, "sys/fs/cgroup/memory.current", f"{7 * GIB}\n")
    assert machine.free_memory(root) <= GIB
    write(root, "sys/fs/cgroup/memory.stat", f"anon {6 * GIB}\ninactive_file {GIB // 2}\n")
    assert GIB < machine.free_memory(root) <= 1.5 * GIB
    write(root, "sys/fs/cgroup/memory.current", f"{9 * GIB}\n")
    assert machine.free_memory(root) == 0


@pytest.mark.parametrize(("told", "ranks"), [(None, 1), ("4", 4), ("0", 1), ("many", 1)])
@pytest.mark.parametrize("name", machine.LOCAL_RANKS)
def test_ranks_of_one_machine(
    monkeypatch: pytest.MonkeyPatch, name: str, told: str | None, ranks: int
) -> None:
    for each in machine.LOCAL_RANKS:
        monkeypatch.delenv(each, raising=False)
    if told is not None:
        monkeypatch.setenv(name, told)
    assert machine.local_ranks() == ranks


def test_ranks_that_nobody_tells_of_are_those_that_have_met(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As torch.multiprocessing.spawn starts them: each took a quarter of the memory."""
    for each in machine.LOCAL_RANKS:
        monkeypatch.delenv(each, raising=False)
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 8)
    assert machine.local_ranks() == 8


@pytest.mark.usefixtures("many_cores")
def test_inside_a_container_the_limits_stand_at_the_root(root: Path) -> None:
    write(root, "proc/self/cgroup", "0::/../../of/the/host\n")
    write(root, "sys/fs/cgroup/cpu.max", "50000 100000\n")
    write(root, "sys/fs/cgroup/memory.max", f"{2 * GIB}\n")
    assert machine.usable_cores(root) == 1
    assert machine.memory_limit(root) == 2 * GIB


@pytest.mark.usefixtures("many_cores")
def test_version_one_limits(root: Path) -> None:
    write(root, "proc/self/cgroup", "4:memory:/job\n3:cpu,cpuacct:/job\n1:name=systemd:/\n")
    write(root, "sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "800000\n")
    write(root, "sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us", "100000\n")
    write(root, "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n")
    write(root, "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n")
    write(root, "sys/fs/cgroup/memory/job/memory.limit_in_bytes", f"{16 * GIB}\n")
    write(root, "sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n")
    assert machine.usable_cores(root) == 8
    assert machine.memory_limit(root) == 16 * GIB


def test_this_machine() -> None:
    found = machine.describe()
    assert found == machine.describe()
    assert 1 <= found.cores <= (os.cpu_count() or 1)
    assert found.memory_bytes > 0
    assert found.cpu
    assert len(found.fingerprint) == 12
    assert found.python.startswith(f"{sys.version_info.major}.{sys.version_info.minor}.")
    assert found.torch == machine.version("torch")


def test_the_fingerprint_tells_machines_apart_and_forgives_reboots() -> None:
    gpu = (Accelerator("H100", 80 * GIB),)
    this = machine.fingerprint("cpu", 8, 64 * GIB, gpu, "2.13.0")
    assert this == machine.fingerprint("cpu", 8, 64 * GIB - 10**8, gpu, "2.13.0")
    assert this == machine.fingerprint(
        "cpu", 8, 64 * GIB, (Accelerator("H100", 79 * GIB),), "2.13.0"
    )
    others = [
        machine.fingerprint("other", 8, 64 * GIB, gpu, "2.13.0"),
        machine.fingerprint("cpu", 4, 64 * GIB, gpu, "2.13.0"),
        machine.fingerprint("cpu", 8, 32 * GIB, gpu, "2.13.0"),
        machine.fingerprint("cpu", 8, 64 * GIB, (), "2.13.0"),
        machine.fingerprint("cpu", 8, 64 * GIB, gpu, "2.12.0"),
    ]
    assert this not in others


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [(None, "abc"), ("", ""), ("1", "b"), ("2,0", "ca"), ("-1", ""), ("7", ""), ("GPU-x", "a")],
)
def test_only_visible_gpus_count(
    monkeypatch: pytest.MonkeyPatch, chosen: str | None, expected: str
) -> None:
    if chosen is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", chosen)
    gpus = [Accelerator(name, GIB) for name in "abc"]
    assert "".join(gpu.name for gpu in machine._visible(gpus)) == expected


def test_cache_folder_follows_xdg(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert machine.cache_folder() == tmp_path / "cache" / "outpace"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative/paths/are/invalid")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert machine.cache_folder() == tmp_path / ".cache" / "outpace"


def test_a_home_that_cannot_be_written_does_not_fail(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("a file where a folder should be")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "elsewhere"))
    (tmp_path / "elsewhere").mkdir()
    folder = machine.cache_folder()
    assert folder.is_dir()
    assert folder.parent == tmp_path / "elsewhere"


def test_torch_is_not_imported() -> None:
    code = (
        "import sys; from outpace.measure import ceilings, machine, statistics;"
        "machine.describe(); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_an_allocation_that_one_process_has_alone_is_not_shared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A script that sbatch starts has sixteen tasks' cores, and all of them for itself."""
    for each in (*machine.LOCAL_RANKS, *machine.OF_SLURM):
        monkeypatch.delenv(each, raising=False)
    monkeypatch.setenv("SLURM_NTASKS_PER_NODE", "16")
    assert machine.local_ranks() == 1
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "4")
    assert machine.local_ranks() == 4


@pytest.mark.parametrize(
    ("torchrun", "affinity", "cores"), [(True, 8, 2), (False, 8, 8), (False, 64, 16)]
)
def test_ranks_share_the_cores_unless_each_was_given_its_own(
    monkeypatch: pytest.MonkeyPatch, torchrun: bool, affinity: int, cores: int
) -> None:
    for each in machine.LOCAL_RANKS:
        monkeypatch.delenv(each, raising=False)
    monkeypatch.setenv("LOCAL_WORLD_SIZE" if torchrun else machine.LOCAL_RANKS[1], "4")
    monkeypatch.setattr(machine, "affinity_cores", lambda: affinity)
    monkeypatch.setattr(machine, "usable_cores", lambda: affinity)
    monkeypatch.setattr(machine.os, "cpu_count", lambda: 64)
    assert machine.cores_of_rank() == cores
