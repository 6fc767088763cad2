"""Which workers should make batches: predicted from a few that were made, the best two tried.

A batch costs its wall time, of which some is CPU time and the rest waiting, and of the CPU time some
holds the interpreter, so that other threads cannot run. With n cores and w workers a second gives at
most

    none:       1 / wall
    threads:    min(queued(w, wall + handed, held + handed), n / (cpu + handed))
    processes:  min(w / (wall - arrival + ipc), n / (cpu + ipc), 1 / arrival)

batches, where handed is what it takes to hand one over from a thread, which holds the interpreter, ipc
what it takes to bring one from a process to another, by its tensors and their bytes, and arrival what is
then done with it in the training's own thread; `queued` is of threads that wait for each other at what
is held. What is made nearly as fast as it is handed over is made where it is drawn, and nothing else is
tried. Trying is to cost little of what it could gain: a small part of an epoch, or of what was waited
in those before, after which what was chosen by prediction alone is looked at again.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Any, NamedTuple

from outpace.errors import UsageError
from outpace.serve.allocating import WORTH, page_faults, worth_trying
from outpace.serve.crossing import crossing_s
from outpace.serve.executors import AS_MADE, Kind, fetch_threads, start
from outpace.serve.held import in_words
from outpace.serve.making import Arrival, BatchMaker, Made, Request, bytes_of

LOOK_S = 0.2
"""seconds of making batches, alone, by two threads, and alone again"""
FIRST_S = 0.15
"""seconds in which they are made for the first time, before that"""
LEAST_S = 0.03
"""seconds of them that are spent however short an epoch is"""
TRY_S = 0.6
"""seconds that a choice is tried for"""
PROBED, PROBE_S = 0.05, 2.0
"""share of an epoch, and seconds, that looking and trying take at most, but for a first few batches"""
COLD = 2.0
"""times its CPU time that a batch takes, from which on it mostly waits: for what is read for the first
time, it may be
"""
UNTRIED = 1.1
"""times as fast that processes are to be predicted for being chosen untried: they take memory and time to
begin"""
CLOSE = 1.5
"""choices whose predictions are nearer than this are tried"""
LEAST = 3
"""batches that are counted while trying"""
GAIN = 1.05
"""how much faster more workers are to be, for being chosen"""
HANDED_S: dict[Kind, float] = {"threads": 1.5e-4, "processes": 3e-4}
"""of a batch that comes from a thread or a process, besides its bytes"""
CHEAP_S = 3e-4
"""a batch made in less is not handed over: little more than that could be gained"""
IPC_S_PER_BYTE = 3e-10
"""CPU seconds of writing into a place in shared memory that is there already"""
START_S = 0.3
"""until worker processes are at work and gone again"""
PROCESS_BYTES = 96 * 2**20
"""memory that a worker process has of its own"""
COUNTS: dict[Kind, tuple[int, ...]] = {
    "threads": (1, 2, 3, 4, 6, 8, 16, 32, 64),
    "processes": (1, 2, 3, 4, 6, 8, 16),
}
"""workers that are considered"""


@dataclass(frozen=True)
class Facts:
    """What making a batch takes. ``scaling``: batches a second by two threads over those by one; None
    where that was not measured, and is taken for one.
    """

    wall_s: float
    cpu_s: float
    scaling: float | None
    batch_bytes: int
    cores: int
    crossing_s: float = 0.0
    """between processes, by its tensors: see `outpace.serve.crossing`"""
    arrival_s: float = 0.0
    """part of the wall time that is spent in this process wherever it was made"""
    faults: float = 0.0
    """pages of fresh memory"""

    @property
    def held_s(self) -> float:
        """CPU seconds of a batch during which no other thread can make one: by `queued`, two threads make
        2 / (1 + share squared) times as many as one.
        """
        if self.cores < 2:
            return 0.0
        # Waiting is not held: two threads that only wait scale by two.
        share = math.sqrt(min(1.0, max(0.0, 2 / (self.scaling or 1.0) - 1)))
        return min(self.cpu_s, share * self.wall_s)

    @property
    def ipc_s(self) -> float:
        """Seconds that a batch takes from one process to another, on both sides together."""
        return HANDED_S["processes"] + self.crossing_s + IPC_S_PER_BYTE * self.batch_bytes


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


def rate(facts: Facts, kind: Kind, workers: int) -> float:
    """Batches a second, with nothing else on the cores."""
    wall, cpu = max(1e-9, facts.wall_s), max(1e-9, facts.cpu_s)
    if kind == "none" or workers == 0:
        return 1 / wall
    if kind == "threads":
        handed = HANDED_S[kind]
        most = queued(workers, wall + handed, facts.held_s + handed)
        return min(most, facts.cores / (cpu + handed))
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
    # One more than keep the cores busy only waits for the interpreter, and makes others wait.
    busy = facts.cores * facts.wall_s / max(1e-9, facts.cpu_s)
    found = []
    for kind in kinds:
        best: Choice | None = None
        for count in (0,) if kind == "none" else (workers,) if workers else COUNTS[kind]:
            if kind == "threads" and best is not None and best.workers + 0.5 > busy:
                break
            depth = depth_of(count, facts.batch_bytes, prefetch_bytes)
            if best is not None and memory(facts, kind, count, depth) > ram:
                break
            told = rate(facts, kind, count)
            if best is None or told > GAIN * best.predicted:
                best = Choice(kind, count, depth, "", told)
        if best is not None and (kind == "none" or memory(facts, *best[:3]) <= ram):
            found.append(best)
    return sorted(found, key=lambda c: (-c.predicted, c.kind == "processes"))


def look(
    maker: BatchMaker,
    requests: Sequence[Request],
    cores: int,
    most: int,
    arrival: Arrival = AS_MADE,
    *,
    threads: bool = True,
) -> Facts:
    """Make batches alone, then by two threads at once, so many; cheap ones alone only, and all where
    ``threads`` are not to be chosen.
    """
    batch = maker(requests[0]).batch
    arrivals: list[float] = []

    def whole(request: Request) -> Made:
        made = maker(request)
        begun = time.perf_counter()
        made = arrival(made)
        arrivals.append(time.perf_counter() - begun)
        return made

    # In threads as workers are: with torch's own beside it a batch would take another time.
    pool = fetch_threads(2) if threads else None

    def alone(*args: Any) -> Timed:
        return (
            pool.submit(_timed, whole, *args).result() if pool is not None else _timed(whole, *args)
        )

    # What is read for the first time is slower, and of a packed set its checksums are looked at.
    first = alone(requests[1:] or requests, len(requests), FIRST_S)
    known = requests[: 1 + first.batches]
    arrivals.clear()
    warm, scaling = alone(known, most), None
    if pool is not None:
        if cores > 1 and warm.wall_s > CHEAP_S:
            both = list(pool.map(lambda some: _timed(whole, some, most), (known, known[::-1])))
            warm = min(warm, alone(known, most))  # the one that was less disturbed
            scaling = min(2.0, max(0.5, sum(warm.wall_s / each.wall_s for each in both)))
        pool.shutdown()
    # Files that are read now may be waited for where those before were not.
    wall = max(warm.wall_s, warm.cpu_s + first.wall_s - first.cpu_s)
    crossing, arrival_s = crossing_s(batch), sum(arrivals) / max(1, len(arrivals))
    return Facts(
        wall, warm.cpu_s, scaling, bytes_of(batch), cores, crossing, arrival_s, warm.faults
    )


class Timed(NamedTuple):
    """Of a batch: seconds as if no one else wanted the cores, CPU seconds and fresh pages; of how many."""

    wall_s: float
    cpu_s: float
    faults: float
    batches: int


def _timed(
    make: Callable[[Request], Made], requests: Sequence[Request], most: int, seconds: float = LOOK_S
) -> Timed:
    """Of ``requests`` made in turn for so long; once there are ``most``, for LEAST_S only."""
    rounds, faults, count = cycle(requests), page_faults(), 0
    begun, cpu, queued = time.perf_counter(), time.thread_time(), _queued()
    while not count or time.perf_counter() - begun < (seconds if count < most else LEAST_S):
        make(next(rounds))
        count += 1
    cpu = time.thread_time() - cpu
    wall = time.perf_counter() - begun - (_queued() - queued)
    faults = page_faults() - faults
    return Timed(max(wall, cpu) / count, cpu / count, faults / count, count)


def _queued() -> float:
    """Seconds that this thread could have run, had there been a core; 0 where Linux does not tell."""
    try:
        with open("/proc/thread-self/schedstat", encoding="ascii") as file:
            return int(file.read().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0


def tried(
    maker: BatchMaker,
    choice: Choice,
    requests: Sequence[Request],
    batch_bytes: int,
    seconds: float,
    arrival: Arrival = AS_MADE,
) -> float:
    """Batches a second of a choice at work, its beginning left out."""
    kind, workers, depth = choice[:3]
    executor = start(
        kind, maker, workers, depth, batch_bytes, arrival, keeps_freed=choice.keeps_freed
    )
    made: Iterator[Made] = executor.made(cycle(requests))
    until = time.perf_counter() + seconds
    try:
        for _ in range(1 + choice.workers):
            next(made)
        begun, count = time.perf_counter(), 0
        while time.perf_counter() < until or count < LEAST:
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
    batches: int,
    cores: int,
    prefetch_bytes: int,
    ram: int,
    arrival: Arrival = AS_MADE,
    saved_s: float = 0.0,
) -> Choice:
    """The fastest of ``kinds`` to make these batches; tried where predictions are near each other.

    ``batches``: of an epoch; a short one leaves no time to try. ``saved_s``: seconds that may be taken
    besides, for what was waited so far.
    """
    if len(kinds) == 1 and workers:
        size = bytes_of(maker(requests[0]).batch)
        depth = depth_of(workers, size, prefetch_bytes)
        return Choice(kinds[0], workers, depth, "as was asked", 0, batch_bytes=size)
    begun = time.perf_counter()
    most, threads = int(PROBED / 4 * batches), "threads" in kinds
    facts = look(maker, requests, cores, most, arrival, threads=threads)
    if "none" in kinds and facts.wall_s < CHEAP_S:
        return at_home(facts)
    found = candidates(facts, kinds=kinds, workers=workers, prefetch_bytes=prefetch_bytes, ram=ram)
    if not found:
        need = memory(facts, kinds[0], workers or 1, 1) / 2**20
        raise UsageError(f"workers and batches take {need:.0f} MiB, {ram / 2**20:.0f} may be taken")
    near = [c for c in found if c.predicted * CLOSE > found[0].predicted]
    if worth_trying(facts.faults, facts.wall_s):
        near += [c._replace(keeps_freed=True) for c in near if c.kind == "processes"]
    spent_s = time.perf_counter() - begun
    spare_s = min(PROBE_S, PROBED * batches * facts.wall_s + saved_s) - spent_s
    seconds, again_s = trial_s(near, spare_s), 0.0
    if seconds:
        near = [
            c._replace(measured=tried(maker, c, requests, facts.batch_bytes, seconds, arrival))
            for c in near
        ]
    elif len(near) > 1:
        again_s = spent_s + least_s(near)
    if facts.wall_s > COLD * facts.cpu_s:
        again_s = max(again_s, spent_s)
    best = best_of(near)
    why = reason(facts, best, near, maker.streams)
    return best._replace(reason=why, batch_bytes=facts.batch_bytes, again_s=again_s)


def at_home(facts: Facts) -> Choice:
    """Batches made where they are drawn, as they are cheap."""
    told = rate(facts, "none", 0)
    why = (
        f"a batch takes {1e3 * facts.wall_s:.2f} ms, little more than to hand it over from a thread: "
        f"it is made when it is drawn; {told:.0f} batches a second measured"
    )
    return Choice("none", 0, 1, why, told, told)


def trial_s(near: Sequence[Choice], spare_s: float) -> float:
    """Seconds that each may be tried for; 0 where they would not tell them apart."""
    each = min(TRY_S, (spare_s - _starts(near)) / len(near))
    enough = each * len(near) >= least_s(near) - _starts(near)
    return each if enough and len(near) > 1 else 0.0


def least_s(near: Sequence[Choice]) -> float:
    """Seconds that trying them takes at the least."""
    return _starts(near) + len(near) * max((1 + c.workers + LEAST) / c.predicted for c in near)


def _starts(near: Sequence[Choice]) -> float:
    return START_S * sum(c.kind == "processes" for c in near)


def best_of(near: Sequence[Choice]) -> Choice:
    """The fastest, by what was measured. Untried, threads go before processes; and work in the
    training's own thread, where no step can hide it, goes last unless it is clearly faster. So does
    what keeps freed memory.
    """

    def worth(choice: Choice) -> float:
        wanted = 1 + WORTH if choice.keeps_freed else GAIN if choice.kind == "none" else 1.0
        if choice.measured is not None:
            return choice.measured / wanted
        return choice.predicted / (UNTRIED if choice.kind == "processes" else wanted)

    return max(near, key=worth)


def reason(facts: Facts, best: Choice, near: Sequence[Choice], streams: Sequence[str]) -> str:
    """Why, in words."""
    said = (
        f"a batch takes {1e3 * facts.wall_s:.1f} ms, {100 * facts.cpu_s / facts.wall_s:.0f} % of it "
        "CPU"
    )
    if facts.scaling is not None:
        said += f"; two threads make {facts.scaling:.1f} times as many as one"
    if streams:
        said = (
            f"samples draw from {in_words(streams)}, which threads would share; a batch takes "
            f"{1e3 * facts.wall_s:.1f} ms"
        )
    how = "measured" if best.measured is not None else "predicted"
    of = f", the best of {len(near)} that were tried" if best.measured is not None else ""
    figure = best.measured if best.measured is not None else best.predicted
    kept = "; workers keep the memory that they free" if best.keeps_freed else ""
    return f"{said}; {figure:.0f} batches a second {how}{of}{kept}"
