"""Measuring the most that this machine gives; run by `outpace.measure.ceilings` in a child process.

`python -m outpace.measure.peaks` prints a `Measured` as JSON. Each figure is the best of several
repeats. Honest limits: the disk is that of the folder given, and behind a hypervisor it may be a
cache of the host; JPEG decoding and dispatch are those of one core; 0 stands for what could not be
measured (a folder that lies in memory, no Pillow).
"""

from __future__ import annotations

import contextlib
import io
import mmap
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from time import perf_counter, process_time
from typing import TYPE_CHECKING, Any

import msgspec

from outpace.measure.machine import cache_folder, describe
from outpace.records.machine import Ceilings

if TYPE_CHECKING:
    import torch

BUSY = 0.1
"""Share of the cores' time that others may take from a measurement that is to last."""
SECONDS = {"matmul": 0.6, "memory": 0.4, "disk": 0.6, "jpeg": 0.3, "dispatch": 0.3}
DISK_BYTES = 64 * 1024**2
DISK_BLOCK = 4 * 1024**2
MEMORY_FILE_SYSTEMS = ("tmpfs", "ramfs", "devtmpfs")


class Measured(msgspec.Struct, frozen=True):
    """Ceilings as one child measured them."""

    ceilings: Ceilings = Ceilings()
    quiet: bool = False
    """the child had the cores to itself"""


def measure(cores: int, folder: Path, seconds: dict[str, float] | None = None) -> Measured:
    """Measure in this process; sets torch's number of threads. ``seconds``: by kind of figure."""
    import torch

    spend = {**SECONDS, **(seconds or {})}
    torch.set_num_threads(cores)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    wall, cpu = perf_counter(), process_time()
    matmul = matmul_flops(device, spend["matmul"])
    had = (process_time() - cpu) / (cores * (perf_counter() - wall))
    memory = _or_zero(memory_bandwidth, device, spend["memory"])
    torch.set_num_threads(1)
    found = Ceilings(
        matmul_flops=matmul,
        memory_bytes_s=memory,
        disk_read_bytes_s=_or_zero(disk_read, folder, spend["disk"]),
        jpeg_decode_pixels_s=_or_zero(jpeg_decode, spend["jpeg"]),
        dispatch_s=_or_zero(dispatch, device, spend["dispatch"]),
        device=device,
    )
    # Who else is busy on a GPU no process is told of.
    return Measured(found, quiet=device == "cpu" and had >= 1.0 - BUSY)


def matmul_flops(device: str, seconds: float) -> dict[str, float]:
    """FLOP/s of square matrix products by dtype name, "tf32" among them on CUDA."""
    import torch

    names = ["float32", "bfloat16"] + (["float16", "tf32"] if device == "cuda" else [])
    found = {}
    for name in names:
        flops = _or_zero(_matmul, torch, device, name, seconds)
        if flops > 0.0:
            found[name] = flops
    return found


def _matmul(torch: Any, device: str, name: str, seconds: float) -> float:
    """The largest product that leaves room for repeats; a dtype may be emulated and very slow."""
    dtype = torch.float32 if name == "tf32" else getattr(torch, name)
    torch.backends.cuda.matmul.allow_tf32 = name == "tf32"
    best = 0.0
    for size in (512, 1024, 2048) if device == "cpu" else (2048, 8192):
        left, right = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
        out = torch.empty_like(left)
        work = 2.0 * size**3
        if best and 4.0 * work / best > seconds:
            break
        took = _best(partial(torch.mm, left, right, out=out), seconds / 3, device)
        best = max(best, work / took)
    return best


def memory_bandwidth(device: str, seconds: float) -> float:
    """Bytes/s, read and written, of copying an array that is far beyond any cache."""
    import torch

    numbers = 64 * 1024**2
    source = torch.ones(numbers, device=device)
    target = torch.empty_like(source)
    return 2.0 * source.nbytes / _best(lambda: target.copy_(source), seconds, device)


def disk_read(folder: Path, seconds: float) -> float:
    """Bytes/s of reading a file in large blocks past the page cache; 0 where it lies in memory."""
    if file_system(folder) in MEMORY_FILE_SYSTEMS:
        return 0.0
    block = mmap.mmap(-1, DISK_BLOCK)
    with tempfile.NamedTemporaryFile(dir=folder, prefix="disk-") as file:
        noise = os.urandom(DISK_BLOCK)
        for _ in range(DISK_BYTES // DISK_BLOCK):
            file.write(noise)
        file.flush()
        os.fsync(file.fileno())
        began, best = perf_counter(), 0.0
        for repeat in count():
            if repeat and perf_counter() - began > seconds:
                return best
            with _uncached(file.name) as handle:
                start, done = perf_counter(), 0
                while (got := os.readv(handle, [block])) > 0:
                    done += got
                best = max(best, done / (perf_counter() - start))
    return best


@contextlib.contextmanager
def _uncached(name: str) -> Iterator[int]:
    """A file opened past the page cache: O_DIRECT where the file system allows, else dropped."""
    try:
        handle = os.open(name, os.O_RDONLY | os.O_DIRECT)
    except (OSError, AttributeError):
        handle = os.open(name, os.O_RDONLY)
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
    try:
        yield handle
    finally:
        os.close(handle)


def file_system(folder: Path) -> str:
    """The type of the file system that a folder lies on, "" where the platform does not tell."""
    place = os.path.realpath(folder)
    best, kind = "", ""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/mounts").read_text().splitlines():
            _, mounted, type_, *_ = line.split()
            under = place == mounted or place.startswith(mounted.rstrip("/") + "/")
            if under and len(mounted) >= len(best):
                best, kind = mounted, type_
    return kind


def jpeg_decode(seconds: float) -> float:
    """Pixels/s of Pillow decoding a photograph-like JPEG of 512 x 512 on one core."""
    import numpy as np
    from PIL import Image

    size = 512
    across = np.linspace(0.0, 6.0, size)
    smooth = 128.0 + 80.0 * np.sin(across)[:, None] * np.cos(across)[None, :]
    grain = np.random.default_rng(0).normal(0.0, 12.0, (size, size, 3))
    picture = np.clip(smooth[:, :, None] + grain, 0, 255).astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(picture).save(file, "JPEG", quality=85)
    return size * size / _best(lambda: Image.open(file).convert("RGB"), seconds, "cpu")


def dispatch(device: str, seconds: float) -> float:
    """Seconds that one tiny operator costs the CPU, forward and backward, in a chain of 100."""
    import torch

    length = 100
    start = torch.ones(1, device=device, requires_grad=True)

    def chain() -> None:
        end: torch.Tensor = start
        for _ in range(length):
            end = end + 1.0
        end.backward()  # type: ignore[no-untyped-call]

    return _best(chain, seconds, device) / length


def _best(work: Callable[[], object], seconds: float, device: str) -> float:
    """The shortest of as many repeats as fit into ``seconds``, at least three, after one more."""
    import torch

    finish: Callable[[], object] = torch.cuda.synchronize if device == "cuda" else lambda: None
    work()
    finish()
    began, best = perf_counter(), float("inf")
    for repeat in count():
        start = perf_counter()
        if repeat >= 3 and start - began > seconds:
            return best
        work()
        finish()
        best = min(best, perf_counter() - start)
    return best


def _or_zero(figure: Callable[..., float], *arguments: object) -> float:
    """A figure, or 0 where it cannot be had on this machine."""
    try:
        return figure(*arguments)
    except Exception:
        return 0.0


if __name__ == "__main__":
    sys.stdout.buffer.write(msgspec.json.encode(measure(describe().cores, cache_folder())))
