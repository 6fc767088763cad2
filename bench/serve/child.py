"""One loader on one data set, in a process of its own: converts, checks or measures it.

`python child.py JOB.json`; the answer is written beside it, as a loader may print what it likes.
"""

import contextlib
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from kit import Batch
from rivals import load
from workloads import WORKLOADS, Workload

LOOKS, TICK_S = 10, 0.1


def processes() -> list[psutil.Process]:
    """This one and all that it started and that are still there."""
    return [this := psutil.Process(), *this.children(recursive=True)]


def summed(of: Callable[[psutil.Process], float]) -> float:
    """Over all of them; what one that has just ended used is told with its parent."""
    found = 0.0
    for process in processes():
        with contextlib.suppress(psutil.Error):
            found += of(process)
    return found


def cpu_s(process: psutil.Process) -> float:
    """CPU seconds, those of children that have ended included."""
    return float(sum(process.cpu_times()[:4]))


def pss_bytes(process: psutil.Process) -> float:
    """Memory; what processes share is counted once."""
    return float(process.memory_full_info().pss)


def in_memory(folder: Path) -> None:
    """Have the system read all files of a loader, which it may have thrown out since they were
    written: all find them in memory.
    """
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                while file.read(1 << 24):
                    pass


def drain(stream: Iterator[Batch], seconds: float) -> tuple[int, float]:
    """Samples drawn, and the seconds it took."""
    begun, samples, gone = time.perf_counter(), 0, 0.0
    while gone < seconds:
        samples += len(next(stream)[2])
        gone = time.perf_counter() - begun
    return samples, gone


def measure(
    stream: Iterator[Batch], begun: float, own_bytes: float, job: dict[str, Any]
) -> dict[str, Any]:
    """Speed and CPU in the midst of it; after that the memory, as looking at it costs. ``own_bytes``: that
    of the process before it had a loader.
    """
    next(stream)
    first_s = time.perf_counter() - begun
    drain(stream, job["warm"])
    cpu = -summed(cpu_s)
    samples, wall = drain(stream, job["seconds"])
    cpu += summed(cpu_s)
    seen: list[float] = []

    def look() -> None:
        for _ in range(LOOKS):
            seen.append(summed(pss_bytes))
            time.sleep(TICK_S)

    looking = threading.Thread(target=look)
    looking.start()
    while looking.is_alive():
        next(stream)
    sample_s, cpu = wall / samples, cpu / samples
    return {
        "seconds": sample_s,
        "cpu_s": cpu,
        "pss_bytes": max(seen),
        "grown_bytes": max(seen) - own_bytes,
        "first_s": first_s,
    }


def distinct(labels: np.ndarray, batch: int) -> float:
    """Classes in a batch, on average."""
    full = labels[: len(labels) // batch * batch].reshape(-1, batch)
    return float(np.mean([len(np.unique(one)) for one in full]))


def check(stream: Iterator[Batch], work: Workload, source: Path) -> dict[str, Any]:
    """What is wrong with one epoch, if anything, and how well it is shuffled."""
    labels, ids, total, kinds, wrong = [], [], 0.0, set(), []
    for x, label, number in stream:
        kinds.add((str(x.dtype).removeprefix("torch."), *x.shape[1:]))
        total += float(x.double().sum()) if work.sliced else 0.0
        labels.append(label.numpy().copy())
        ids.append(number.numpy().copy())
    given = np.concatenate(ids)
    seen, counts = np.unique(given, return_counts=True)
    if len(seen) != work.count or counts.max() > 1:
        wrong.append(f"{len(seen)} of {work.count} samples, up to {counts.max()} times")
    if not np.array_equal(work.labels[given], np.concatenate(labels)):
        wrong.append("labels of other samples")
    if kinds != {work.out}:
        wrong.append(f"samples are {sorted(kinds)} instead of {work.out}")
    if work.sliced and not np.isclose(total, np.asarray(work.raw(source).x, float).sum(), 1e-7):
        wrong.append("other numbers than in the source")
    # A batch that is not full may come in the middle, where several workers end.
    full = np.concatenate([one for one in labels if len(one) == work.batch])
    perfect = distinct(np.random.default_rng(0).permutation(work.labels), work.batch)
    return {"wrong": wrong, "shuffle": distinct(full, work.batch) / perfect}


def main() -> None:
    """Do the job and go, however much is still under way."""
    path = Path(sys.argv[1])
    job = json.loads(path.read_text())
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: job["cores"]])
    work = WORKLOADS[job["work"]]
    work = work.quick() if job["quick"] else work
    rival, folder = load(job["rival"]), Path(job["folder"])
    answer: dict[str, Any] = {}
    if job["do"] == "convert":
        rival.convert(work, Path(job["source"]), folder)
    else:
        in_memory(folder)
        own_bytes = summed(pss_bytes)
        begun = time.perf_counter()
        epochs = 1 if job["do"] == "check" else None
        stream = iter(rival.batches(work, folder, epochs, **job["setting"]))
        source = Path(job["source"])
        if epochs:
            answer = check(stream, work, source)
        else:
            answer = measure(stream, begun, own_bytes, job)
        if job["do"] == "tell":
            answer = rival.told()
    path.with_suffix(".answer").write_text(json.dumps(answer))
    os._exit(0)


if __name__ == "__main__":
    main()
