"""Which workers should make batches: predicted from a few that were made, the best two tried.

A batch costs its wall time, of which some is CPU time and the rest waiting, and of the CPU time some
holds the interpreter, so that other threads cannot run. With n cores and w workers a second gives at
most

    threads:    min(w / wall, n / cpu, 1 / held)
    processes:  min(w / (wall + ipc), n / (cpu + ipc))

batches, where ipc is what it takes to bring one from a process to another.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import NamedTuple

from outpace.errors import UsageError
from outpace.serve.executors import Kind, fetch_threads, start
from outpace.serve.making import BatchMaker, Made, Request, bytes_of

LOOK_S = 0.3
"""seconds of making batches, alone and again by two threads"""
TRY_S = 0.6
"""seconds that a choice is tried for"""
CLOSE = 1.5
"""choices whose predictions are nearer than this are tried"""
GAIN = 1.05
"""how much faster more workers are to be, for being chosen"""
IPC_S_PER_BYTE = 1e-9
HANDED_S = 3e-4
"""of a batch that comes from another process, besides its bytes"""
PROCESS_BYTES = 96 * 2**20
"""memory that a worker process has of its own"""
COUNTS: dict[Kind, tuple[int, ...]] = {
    "threads": (1, 2, 3, 4, 6, 8, 16, 32, 64),
    "processes": (1, 2, 3, 4, 6, 8, 16),
}
"""workers that are considered"""


@dataclass(frozen=True)
class Facts:
    """What making a batch takes. ``scaling``: batches a second by two threads over those by one."""

    wall_s: float
    cpu_s: float
    scaling: float
    batch_bytes: int
    cores: int

    @property
    def held_s(self) -> float:
        """CPU seconds of a batch during which no other thread can make one (Amdahl)."""
        if self.cores < 2:
            return 0.0
        # Waiting is not held: two threads that only wait scale by two.
        serial = min(1.0, max(0.0, 2 / self.scaling - 1))
        return min(self.cpu_s, serial * self.wall_s)


class Choice(NamedTuple):
    """Workers, batches on their way, and why; rates in batches a second."""

    kind: Kind
    workers: int
    depth: int
    reason: str
    predicted: float
    measured: float | None = None


def rate(facts: Facts, kind: Kind, workers: int) -> float:
    """Batches a second, with nothing else on the cores."""
    wall, cpu = max(1e-9, facts.wall_s), max(1e-9, facts.cpu_s)
    if kind == "none" or workers == 0:
        return 1 / wall
    if kind == "threads":
        held = facts.held_s
        most = min(workers / wall, facts.cores / cpu)
        return min(most, 1 / held) if held > 0 else most
    ipc = HANDED_S + IPC_S_PER_BYTE * facts.batch_bytes
    return min(workers / (wall + ipc), facts.cores / (cpu + ipc))


def memory(facts: Facts, kind: Kind, workers: int, depth: int) -> int:
    """Bytes that batches on their way and workers take."""
    own = PROCESS_BYTES * workers if kind == "processes" else 0
    return own + (depth + workers) * facts.batch_bytes


def depth_of(workers: int, batch_bytes: int, prefetch_bytes: int) -> int:
    """Batches on their way: two a worker, as many more as fit, and one at the least."""
    room = prefetch_bytes // max(1, batch_bytes)
    return int(max(1, min(room, max(2 * workers, 4))))


def candidates(
    facts: Facts, *, kinds: Sequence[Kind], workers: int | None, prefetch_bytes: int, ram: int
) -> list[Choice]:
    """The best of each kind that fits the memory, the fastest first; fewer workers where equal.

    ``workers``: as many, where that is given.
    """
    found = []
    for kind in kinds:
        best: Choice | None = None
        for count in (0,) if kind == "none" else (workers,) if workers else COUNTS[kind]:
            depth = depth_of(count, facts.batch_bytes, prefetch_bytes)
            if best is not None and memory(facts, kind, count, depth) > ram:
                break
            told = rate(facts, kind, count)
            if best is None or told > GAIN * best.predicted:
                best = Choice(kind, count, depth, "", told)
        if best is not None and (kind == "none" or memory(facts, *best[:3]) <= ram):
            found.append(best)
    return sorted(found, key=lambda c: (-c.predicted, c.kind == "processes"))


def look(maker: BatchMaker, requests: Sequence[Request], cores: int) -> Facts:
    """Make batches alone, then by two threads at once."""
    rounds = cycle(requests)
    first = maker(next(rounds))
    wall, cpu, _ = _timed(maker, rounds)
    scaling = 1.0
    if cores > 1 and not maker.streams:
        pool = fetch_threads(2)
        both = list(
            pool.map(lambda first: _timed(maker, cycle(requests[first:])), (0, len(requests) // 2))
        )
        pool.shutdown()
        scaling = max(0.5, sum(wall / each for each, _, _ in both))
    return Facts(wall, cpu, scaling, bytes_of(first.batch), cores)


def _timed(maker: BatchMaker, requests: Iterator[Request]) -> tuple[float, float, int]:
    """Wall and CPU seconds a batch, as if no one else wanted the cores, and how many were made."""
    begun, cpu, queued, count = time.perf_counter(), time.thread_time(), _queued(), 0
    while time.perf_counter() - begun < LOOK_S or not count:
        maker(next(requests))
        count += 1
    cpu = time.thread_time() - cpu
    wall = time.perf_counter() - begun - (_queued() - queued)
    return max(wall, cpu) / count, cpu / count, count


def _queued() -> float:
    """Seconds that this thread could have run, had there been a core; 0 where Linux does not tell."""
    try:
        with open("/proc/thread-self/schedstat", encoding="ascii") as file:
            return int(file.read().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0


def tried(
    maker: BatchMaker, choice: Choice, requests: Sequence[Request], batch_bytes: int
) -> float:
    """Batches a second of a choice at work, its beginning left out."""
    executor = start(choice.kind, maker, choice.workers, choice.depth, batch_bytes)
    made: Iterator[Made] = executor.made(cycle(requests))
    try:
        for _ in range(1 + choice.workers):
            next(made)
        begun, count = time.perf_counter(), 0
        while time.perf_counter() - begun < TRY_S or count < 3:
            next(made)
            count += 1
        return count / (time.perf_counter() - begun)
    finally:
        if hasattr(made, "close"):
            made.close()
        executor.close()


def choose(
    maker: BatchMaker,
    requests: Sequence[Request],
    *,
    kinds: Sequence[Kind],
    workers: int | None,
    cores: int,
    prefetch_bytes: int,
    ram: int,
) -> Choice:
    """The fastest of ``kinds`` to make these batches; tried where predictions are near each other."""
    if len(kinds) == 1 and workers:
        size = bytes_of(maker(requests[0]).batch)
        return Choice(kinds[0], workers, depth_of(workers, size, prefetch_bytes), "as was asked", 0)
    facts = look(maker, requests, cores)
    found = candidates(facts, kinds=kinds, workers=workers, prefetch_bytes=prefetch_bytes, ram=ram)
    if not found:
        need = memory(facts, kinds[0], workers or 1, 1) / 2**20
        raise UsageError(f"workers and batches take {need:.0f} MiB, {ram / 2**20:.0f} may be taken")
    best = found[0]
    near = [c for c in found if c.predicted * CLOSE > best.predicted]
    if len(near) > 1:
        near = [c._replace(measured=tried(maker, c, requests, facts.batch_bytes)) for c in near]
        best = max(near, key=lambda c: c.measured or 0.0)
    return best._replace(reason=reason(facts, best, near, maker.streams))


def reason(facts: Facts, best: Choice, near: Sequence[Choice], streams: Sequence[str]) -> str:
    """Why, in words."""
    said = (
        f"a batch takes {1e3 * facts.wall_s:.1f} ms, {100 * facts.cpu_s / facts.wall_s:.0f} % of it "
        f"CPU; two threads make {facts.scaling:.1f} times as many as one"
    )
    if streams:
        said = (
            f"samples draw from the process's {' and '.join(streams)} generator, which threads "
            f"would share; a batch takes {1e3 * facts.wall_s:.1f} ms"
        )
    how = "measured" if best.measured is not None else "predicted"
    of = f", the best of {len(near)} that were tried" if len(near) > 1 else ""
    figure = best.measured if best.measured is not None else best.predicted
    return f"{said}; {figure:.0f} batches a second {how}{of}"
