"""How fast batches come from how many workers, by what it takes to make one.

A batch costs its wall time, of which some is CPU time and the rest waiting, and of the CPU time some
holds the interpreter, so that other threads cannot run. With n cores and w workers a second gives at
most

    none:       1 / wall
    threads:    min(queued(w, wall + handed, held + handed), n / (cpu + handed))
    processes:  min(w / (wall - arrival + ipc), n / (cpu + ipc), 1 / arrival)

batches, where handed is what it takes to hand one over from a thread, which holds the interpreter, ipc
what it takes to bring one from a process to another, by its tensors and their bytes, and arrival what is
then done with it in the training's own thread; `queued` is of threads that wait for each other at what
is held.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from outpace.serve.executors import LEAST, Kind
from outpace.serve.looking import BY_THREAD_S, Facts
from outpace.serve.places import SLACK, SPARE
from outpace.serve.processes import ahead_of

COUNTS: dict[Kind, tuple[int, ...]] = {
    "threads": (1, 2, 3, 4, 6, 8, 16, 32, 64),
    "processes": (1, 2, 3, 4, 6, 8, 16),
}
"""workers that are considered"""
AHEAD = 16
"""batches that are to be ready: a machine that is slower for a moment is not waited for"""
GAIN = 1.05
"""how much faster more workers are to be, for being chosen"""
PROCESS_BYTES = 96 * 2**20
"""memory that a worker process has of its own"""


class Choice(NamedTuple):
    """Workers, batches on their way, and why; rates in batches a second."""

    kind: Kind
    workers: int
    depth: int
    reason: str
    predicted: float
    measured: float | None = None
    keeps_freed: bool = False
    """worker processes keep the memory that they free for the next batch"""
    batch_bytes: int = 0
    again_s: float = 0.0
    """seconds of choosing again, which may turn out otherwise: others were near and not tried, or what
    was looked at was read for the first time; 0 where there is no reason to
    """


def rate(facts: Facts, kind: Kind, workers: int, depth: int | None = None) -> float:
    """Batches a second, with nothing else on the cores. ``depth``: batches on their way, where they are
    limited; no more threads than these are at work.
    """
    wall, cpu = max(1e-9, facts.wall_s), max(1e-9, facts.cpu_s)
    if kind == "none" or workers == 0:
        return 1 / wall
    if kind == "threads":
        workers = min(workers, depth or workers)
        most = queued(workers, wall + BY_THREAD_S, facts.held_s + BY_THREAD_S)
        return min(most, facts.cores / (cpu + BY_THREAD_S))
    made = max(0.0, wall - facts.arrival_s)
    most = min(workers / (made + facts.ipc_s), facts.cores / (cpu + facts.ipc_s))
    return min(most, 1 / max(1e-9, facts.arrival_s))


def queued(threads: int, whole_s: float, held_s: float) -> float:
    """Rounds a second of threads that each take ``whole_s``, of which ``held_s`` one at a time.

    The closed queue of mean value analysis (Reiser and Lavenberg 1980, JACM 27(2)).
    """
    found = waiting = 0.0
    for count in range(1, threads + 1):
        stay = held_s * (1 + waiting)
        found = count / (whole_s - held_s + stay)
        waiting = found * stay
    return found


def memory(batch_bytes: int, kind: Kind, workers: int, depth: int) -> int:
    """Bytes that batches on their way and workers take; of processes, the places that batches lie in."""
    if kind != "processes":
        return (depth + workers) * batch_bytes
    places = SLACK * workers * (ahead_of(workers, depth) + SPARE)
    return PROCESS_BYTES * workers + int(max(depth + workers, places) * batch_bytes)


def bytes_ahead(kind: Kind, workers: int, prefetch_bytes: int, ram: int) -> int:
    """Bytes that batches on their way may have together, however large they come to be."""
    own = PROCESS_BYTES * workers if kind == "processes" else 0
    return max(0, min(prefetch_bytes, ram - own))


def depth_of(kind: Kind, workers: int, batch_bytes: int, prefetch_bytes: int, ram: int) -> int:
    """Batches on their way: AHEAD, or as many as ``ram`` has room for, but two a worker; fewer where
    ``prefetch_bytes`` are less, and LEAST in any case.
    """
    room = prefetch_bytes // max(1, batch_bytes)
    fewest, depth = (max(LEAST, min(room, max(2 * workers, n))) for n in (4, AHEAD))
    while depth > fewest and memory(batch_bytes, kind, workers, depth) > ram:
        depth -= 1
    return depth


def candidates(
    facts: Facts, *, kinds: Sequence[Kind], workers: int | None, prefetch_bytes: int, ram: int
) -> list[Choice]:
    """The best of each kind that fits the memory, the fastest first; fewer workers where equal.

    ``workers``: as many, where that is given.
    """
    # One more than keep the cores busy only waits for the interpreter, and makes others wait.
    busy = facts.cores * facts.wall_s / max(1e-9, facts.cpu_s)
    found = []
    for kind in kinds:
        best: Choice | None = None
        for count in (0,) if kind == "none" else (workers,) if workers else COUNTS[kind]:
            if kind == "threads" and best is not None and best.workers + 0.5 > busy:
                break
            depth = depth_of(kind, count, facts.batch_bytes, prefetch_bytes, ram)
            if best is not None and memory(facts.batch_bytes, kind, count, depth) > ram:
                break
            told = rate(facts, kind, count, depth)
            if best is None or told > GAIN * best.predicted:
                best = Choice(kind, count, depth, "", told)
        if best is not None and (kind == "none" or memory(facts.batch_bytes, *best[:3]) <= ram):
            found.append(best)
    return sorted(found, key=lambda c: (-c.predicted, c.kind == "processes"))
