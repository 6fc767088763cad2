"""What data loading has to live with here: shared memory, cores, memory, open files, start of workers.

Cores and the limit on memory are those of `outpace.measure.machine`; here they are set beside what
the machine has, as that is what programs size themselves by. Nothing imports torch: what is told of
its way to share tensors is its default, unless this process runs torch already.

Honest limits: a limit on files or memory that is set later, by a launcher or by the script, is not
seen; of a quota of 1.5 cores one is told; without /dev/shm (macOS) shared memory is not judged.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import msgspec
import psutil

from outpace.measure.machine import ROOT, affinity_cores, memory_limit, usable_cores
from outpace.seams.start_method import start_method

GIB = 1024**3
SHARED = Path("/dev/shm")
ENOUGH_SHARED = GIB
ENOUGH_FILES = 1024
"""what most systems give; each tensor that a worker hands over keeps one open"""
ALIKE = 0.98
"""a limit this near to all that there is takes nothing away: kernels keep some memory back"""


class SharedMemory(msgspec.Struct, frozen=True):
    """The file system in memory through which worker processes hand over their batches."""

    path: str
    bytes: int
    free_bytes: int


class Start(msgspec.Struct, frozen=True):
    """What one worker costs to start."""

    seconds: float
    """until it answers, with torch imported"""
    own_bytes: int | None = None
    """memory that it shares with no other process; None where the system does not tell"""


class DataLoading(msgspec.Struct, frozen=True):
    """Facts of a machine that decide how data can be loaded on it."""

    shared_memory: SharedMemory | None
    cores: int
    """that this process may keep busy, by affinity and the cgroup's quota"""
    affinity_cores: int
    machine_cores: int
    memory_bytes: int
    """that this process may use, by the cgroup"""
    machine_memory_bytes: int
    open_files: int | None
    """soft limit; None where there is none"""
    most_open_files: int | None
    """hard limit: what a process may raise its own to"""
    sharing: str
    """torch's way to share tensors: "file_descriptor" or "file_system" """
    start_method: str
    """of worker processes, where the script chooses none"""
    starts: dict[str, Start] = {}
    """by start method, where it was measured (`outpace.measure.starts`)"""


def data_loading(root: Path = ROOT, shared: Path = SHARED) -> DataLoading:
    """The facts of this machine, all but what takes seconds to measure."""
    soft, hard = open_files()
    return DataLoading(
        shared_memory=shared_memory(shared),
        cores=usable_cores(root),
        affinity_cores=affinity_cores(),
        machine_cores=os.cpu_count() or 1,
        memory_bytes=memory_limit(root),
        machine_memory_bytes=psutil.virtual_memory().total,
        open_files=soft,
        most_open_files=hard,
        sharing=sharing_strategy(),
        start_method=start_method(),
    )


def shared_memory(path: Path = SHARED) -> SharedMemory | None:
    """Size of the file system at ``path``; None where there is none."""
    try:
        told = os.statvfs(path)
    except (AttributeError, OSError):
        return None
    return SharedMemory(str(path), told.f_frsize * told.f_blocks, told.f_frsize * told.f_bavail)


def open_files() -> tuple[int | None, int | None]:
    """Soft and hard limit on open files; None where there is no limit or no such thing."""
    try:
        import resource
    except ImportError:
        return None, None
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    none = resource.RLIM_INFINITY
    return None if soft == none else soft, None if hard == none else hard


def sharing_strategy() -> str:
    """How torch shares tensors between processes: as it is set here, else its default."""
    torch = sys.modules.get("torch")
    if torch is not None:
        return str(torch.multiprocessing.get_sharing_strategy())
    return "file_system" if sys.platform in ("darwin", "win32") else "file_descriptor"


def hints(found: DataLoading) -> dict[str, str]:
    """What is amiss and what to do about it, by the name of the fact."""
    rows = {
        "shared_memory": _shared_hint(found.shared_memory),
        "cores": _cores_hint(found),
        "memory_bytes": _memory_hint(found),
        "open_files": _files_hint(found),
        "start_method": _start_hint(found),
    }
    return {name: text for name, text in rows.items() if text}


def _shared_hint(shared: SharedMemory | None) -> str | None:
    if shared is None:
        return None
    if shared.bytes < ENOUGH_SHARED:
        return (
            "batches of workers lie in it, and workers die when it is full: "
            "docker run --shm-size=8g, or fewer workers"
        )
    if shared.free_bytes < 0.1 * shared.bytes:
        return f"it is nearly full: remove what ended programs left in {shared.path}"
    return None


def _cores_hint(found: DataLoading) -> str | None:
    if found.cores >= found.affinity_cores:
        return None  # Programs ask for the affinity, and the quota takes nothing from that.
    return (
        f"programs see {found.affinity_cores}: set num_workers and OMP_NUM_THREADS by "
        f"{found.cores}, as what goes beyond the quota is made to wait"
    )


def _memory_hint(found: DataLoading) -> str | None:
    shared = found.shared_memory
    if shared is None or not limited_memory(found) or shared.bytes <= found.memory_bytes:
        return None
    return f"what lies in {shared.path} counts too: the limit is reached before it is full"


def _files_hint(found: DataLoading) -> str | None:
    few = found.open_files is not None and found.open_files < ENOUGH_FILES
    if not few or found.sharing != "file_descriptor":
        return None
    most = found.most_open_files
    raised = most is None or most >= ENOUGH_FILES
    more = f"ulimit -n {65536 if most is None else min(65536, most)}, or " if raised else ""
    return (
        "each tensor of a worker's batch keeps a file open: "
        f"{more}torch.multiprocessing.set_sharing_strategy('file_system')"
    )


def _start_hint(found: DataLoading) -> str | None:
    if found.start_method == "fork":
        return None
    taken = found.starts.get(found.start_method)
    each = f" ({taken.seconds:.1f} s)" if taken is not None else ""
    return (
        f"each worker imports torch and the script anew{each}, and in every epoch again: "
        "DataLoader(..., persistent_workers=True)"
    )


def limited_memory(found: DataLoading) -> bool:
    """Whether this process may use less memory than the machine has."""
    return 0 < found.memory_bytes < ALIKE * found.machine_memory_bytes
