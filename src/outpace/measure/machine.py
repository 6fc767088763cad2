"""What this machine is, as far as this process may use it: cores, memory, GPUs, versions.

A container or a batch system often gives less than the machine has, so cores are those of the
scheduler's affinity and the cgroup's CPU quota, and memory is what the cgroup allows (both
versions of cgroups, every level up to the root). Nothing here imports torch or starts CUDA: a GPU
context made here would forbid the script to fork its loader workers.

Honest limits: AMD and Apple GPUs are seen only where torch runs on them already; a quota of 1.5
cores counts as one.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.metadata
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from outpace.records.machine import Accelerator, Machine

ROOT = Path("/")
GIB = 1024**3
VECTOR_UNITS = (
    ("amx_bf16", "AMX"),
    ("avx512_bf16", "AVX-512, bfloat16"),
    ("avx512f", "AVX-512"),
    ("avx2", "AVX2"),
    ("sve2", "SVE2"),
    ("sve", "SVE"),
)
"""by the kernel's names, the fastest first"""
LOCAL_RANKS = ("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE")
"""variables of torchrun and mpirun"""
OF_SLURM = ("SLURM_NTASKS_PER_NODE", "SLURM_STEP_NUM_TASKS")
"""of an allocation, which one process alone may have, and of what srun began in it"""


def describe() -> Machine:
    """This machine; its ceilings are measured by `outpace.measure.ceilings`."""
    cpu, cores, memory = cpu_model(), usable_cores(), memory_limit()
    gpus, torch = accelerators(), version("torch")
    return Machine(
        fingerprint=fingerprint(cpu, cores, memory, gpus, torch),
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        cpu=cpu,
        cores=cores,
        memory_bytes=memory,
        accelerators=gpus,
        python=platform.python_version(),
        torch=torch,
    )


def fingerprint(
    cpu: str, cores: int, memory: int, gpus: tuple[Accelerator, ...], torch: str
) -> str:
    """Twelve hexadecimal digits that stay the same over reboots and kernels.

    Memory counts in whole GiB (kernels keep back varying amounts), a GPU by its name.
    """
    parts = [cpu, str(cores), str(round(memory / GIB)), torch, *(gpu.name for gpu in gpus)]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]


def cpu_model(root: Path = ROOT) -> str:
    """The processor's name, with its widest units for vectors: clouds give several kinds one name."""
    name = units = None
    for line in _lines(root / "proc/cpuinfo"):
        key, _, value = (part.strip() for part in line.partition(":"))
        if name is None and key in ("model name", "Model", "cpu model") and value:
            name = value
        elif units is None and key in ("flags", "Features"):
            has = value.split()
            units = next((said for flag, said in VECTOR_UNITS if flag in has), "")
        if name is not None and units is not None:
            break  # the other processors are the same
    name = name or platform.processor() or platform.machine() or "unknown"
    return f"{name} ({units})" if units else name


def usable_cores(root: Path = ROOT) -> int:
    """Cores that this process may keep busy: affinity and CPU quota, at least one."""
    return max(1, min([affinity_cores(), *(int(quota) for quota in _quotas(root))]))


def affinity_cores() -> int:
    """Cores that the scheduler gives this process."""
    try:
        return len(os.sched_getaffinity(0))
    except (AttributeError, OSError):
        return os.cpu_count() or 1


def memory_limit(root: Path = ROOT) -> int:
    """Bytes of memory that this process may use: the machine's, or less where a cgroup says so."""
    limits = [_physical_memory(root), *(limit for _, limit in _limited_groups(root))]
    return min((limit for limit in limits if limit > 0), default=0)


def free_memory(root: Path = ROOT) -> int:
    """Bytes of memory that this process may still take: what others of its machine and cgroups have is
    not free, pages of files that nobody has read again are.
    """
    import psutil

    free = [psutil.virtual_memory().available]
    for folder, limit in _limited_groups(root):
        taken = [*_words(folder / "memory.current"), *_words(folder / "memory.usage_in_bytes")]
        kept = dict(line.partition(" ")[::2] for line in _lines(folder / "memory.stat"))
        pages = int(kept.get("total_inactive_file") or kept.get("inactive_file") or 0)
        used = int(taken[0]) - pages if taken else psutil.Process().memory_info().rss
        free.append(limit - used)
    return max(0, min(free))


def local_ranks() -> int:
    """Ranks of one training that share this machine, as who started them tells; else all that have met."""
    for name in LOCAL_RANKS:
        told = os.environ.get(name, "")
        if told.isdigit():
            return max(1, int(told))
    tasks = [os.environ.get(name, "") for name in OF_SLURM]
    if all(each.isdigit() for each in tasks):
        return max(1, min(map(int, tasks)))
    torch = sys.modules.get("torch")
    if torch is None or not torch.distributed.is_available():
        return 1
    met = torch.distributed.is_initialized()
    return int(torch.distributed.get_world_size()) if met else 1


def cores_of_rank() -> int:
    """This rank's share of the cores: all that it may use where whoever started it gave each rank its own."""
    own = affinity_cores() < (os.cpu_count() or 1) and "LOCAL_WORLD_SIZE" not in os.environ
    return usable_cores() if own else max(1, usable_cores() // local_ranks())


def accelerators() -> tuple[Accelerator, ...]:
    """NVIDIA GPUs that this process sees, and any that torch already works with."""
    torch = sys.modules.get("torch")
    try:
        if torch is not None and torch.cuda.is_initialized():
            found = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())]
            return tuple(Accelerator(gpu.name, gpu.total_memory) for gpu in found)
    except Exception:
        pass
    gpus = _from_nvml()
    return _visible(_from_nvidia_smi() if gpus is None else gpus)


def version(package: str) -> str:
    """The installed version of a package, "" where it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def cache_folder() -> Path:
    """Where facts about this machine are kept between sessions; always a folder to write in."""
    chosen = os.environ.get("XDG_CACHE_HOME", "")
    try:
        base = Path(chosen) if os.path.isabs(chosen) else Path.home() / ".cache"
        return _writable(base / "outpace")
    except (OSError, RuntimeError):
        user = os.getuid() if hasattr(os, "getuid") else "user"
        try:
            return _writable(Path(tempfile.gettempdir()) / f"outpace-{user}")
        except OSError:
            return Path(tempfile.mkdtemp(prefix="outpace-"))


def _writable(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    tempfile.TemporaryFile(dir=folder).close()
    return folder


def _quotas(root: Path) -> Iterator[float]:
    """CPU quotas, in cores, of every control group that this process is in."""
    for folder in _control_groups(root, "cpu"):
        words = _words(folder / "cpu.max")
        if not words:
            words = _words(folder / "cpu.cfs_quota_us") + _words(folder / "cpu.cfs_period_us")
        if len(words) == 2 and words[0].isdigit() and words[1].isdigit() and int(words[1]) > 0:
            yield int(words[0]) / int(words[1])


def _limited_groups(root: Path) -> Iterator[tuple[Path, int]]:
    """Folders of the groups whose memory is limited, and to how many bytes."""
    for folder in _control_groups(root, "memory"):
        for name in ("memory.max", "memory.limit_in_bytes"):
            for word in _words(folder / name):
                if word.isdigit() and int(word) > 0:
                    yield folder, int(word)


def _control_groups(root: Path, controller: str) -> Iterator[Path]:
    """Folders of this process's groups for a controller, from its own up to the root group.

    Inside a container the path in /proc/self/cgroup may be the host's: levels that are not there
    are simply not found, and the container's own limits stand at the root.
    """
    mounted = root / "sys/fs/cgroup"
    for line in _lines(root / "proc/self/cgroup"):
        number, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        if number == "0" and not names:
            tops = [mounted, mounted / "unified"]
        elif controller in names.split(","):
            tops = [mounted / names, mounted / controller]
        else:
            continue
        steps = [step for step in path.split("/") if step not in ("", "..")]
        for top in tops:
            for depth in range(len(steps), -1, -1):
                yield top.joinpath(*steps[:depth])


def _physical_memory(root: Path) -> int:
    for line in _lines(root / "proc/meminfo"):
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) * 1024
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return 0


def _from_nvml() -> list[Accelerator] | None:
    """GPUs as nvidia-ml-py tells them; None where it is not installed."""
    try:
        pynvml: Any = importlib.import_module("pynvml")
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
    except Exception:
        return []
    try:
        found = []
        for index in range(pynvml.nvmlDeviceGetCount()):
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            name = pynvml.nvmlDeviceGetName(handle)
            name = name.decode() if isinstance(name, bytes) else str(name)
            found.append(Accelerator(name, int(pynvml.nvmlDeviceGetMemoryInfo(handle).total)))
        return found
    except Exception:
        return []
    finally:
        pynvml.nvmlShutdown()


def _from_nvidia_smi() -> list[Accelerator]:
    """GPUs as the driver's own tool tells them; asked only where a driver is loaded."""
    if not os.path.exists("/proc/driver/nvidia/version"):
        return []
    query = ["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=10, check=True)
        rows = [line.rpartition(",") for line in done.stdout.splitlines() if line.strip()]
        return [Accelerator(name.strip(), int(mib) * 1024**2) for name, _, mib in rows]
    except (OSError, ValueError, subprocess.SubprocessError):
        return []


def _visible(gpus: list[Accelerator]) -> tuple[Accelerator, ...]:
    """Those that CUDA_VISIBLE_DEVICES leaves, where it names them by number."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is None:
        return tuple(gpus)
    names = [name.strip() for name in chosen.split(",") if name.strip()]
    if not all(name.isdigit() for name in names):
        return () if names == ["-1"] else tuple(gpus[: len(names)])
    return tuple(gpus[int(name)] for name in names if int(name) < len(gpus))


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(errors="replace").splitlines()
    except OSError:
        return []


def _words(path: Path) -> list[str]:
    return " ".join(_lines(path)).split()
