"""Which workers should make batches: predicted from a few that were made, the best two tried.

What is made nearly as fast as it is handed over is made where it is drawn, and nothing else is tried.
Trying is to cost little of what it could gain: a small part of an epoch, or of what was waited in those
before, after which what was chosen by prediction alone is looked at again.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from itertools import cycle

from outpace.errors import DataError, UsageError
from outpace.serve.allocating import WORTH, worth_trying
from outpace.serve.executors import AS_MADE, Kind, start
from outpace.serve.held import in_words
from outpace.serve.looking import CHEAP_S, Facts, look
from outpace.serve.making import Arrival, BatchMaker, Made, Request, bytes_of
from outpace.serve.rates import GAIN, Choice, candidates, depth_of, memory, rate

TRY_S = 0.6
"""seconds that a choice is tried for, longer where so few batches come in them that they tell nothing"""
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
START_S = 0.3
"""until worker processes are at work and gone again"""


def tried(
    maker: BatchMaker,
    choice: Choice,
    requests: Sequence[Request],
    batch_bytes: int,
    seconds: float,
    arrival: Arrival = AS_MADE,
) -> float:
    """Batches a second of a choice at work, its beginning left out; 0 where it fails."""
    kind, workers, depth = choice[:3]
    try:
        executor = start(
            kind, maker, workers, depth, batch_bytes, arrival, keeps_freed=choice.keeps_freed
        )
    except RuntimeError:  # the system gives no more threads
        return 0.0
    made: Iterator[Made] = executor.made(cycle(requests))
    until = time.perf_counter() + seconds
    try:
        if any(next(made).error is not None for _ in range(1 + choice.workers)):
            return 0.0
        begun, count = time.perf_counter(), 0
        while time.perf_counter() < until or count < LEAST:
            if next(made).error is not None:
                return 0.0
            count += 1
        return count / (time.perf_counter() - begun)
    except (DataError, OSError):  # of workers that have ended, or could not begin
        return 0.0
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
        depth = depth_of(kinds[0], workers, size, prefetch_bytes, ram)
        if (need := memory(size, kinds[0], workers, depth)) > ram:
            raise too_much(need, ram)
        return Choice(kinds[0], workers, depth, "as was asked", 0, batch_bytes=size)
    begun = time.perf_counter()
    most, threads = int(PROBED / 4 * batches), "threads" in kinds
    facts = look(maker, requests, cores, most, arrival, threads=threads)
    if "none" in kinds and facts.wall_s < CHEAP_S:
        return at_home(facts)
    found = candidates(facts, kinds=kinds, workers=workers, prefetch_bytes=prefetch_bytes, ram=ram)
    if not found:
        count, size = workers or 1, facts.batch_bytes
        depth = depth_of(kinds[0], count, size, prefetch_bytes, ram)
        raise too_much(memory(size, kinds[0], count, depth), ram)
    if not found[0].predicted:  # it cannot be handed over: the worker's own error says why
        return found[0]._replace(reason="as was asked", batch_bytes=facts.batch_bytes)
    near = [c for c in found if c.predicted * CLOSE > found[0].predicted]
    if worth_trying(facts.faults, facts.wall_s):
        near += [c._replace(keeps_freed=True) for c in near if c.kind == "processes"]
    spent_s = time.perf_counter() - begun
    spare_s = min(PROBE_S, PROBED * batches * facts.wall_s) + saved_s - spent_s
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


def too_much(need: int, ram: int) -> UsageError:
    """What is told where memory does not do for the workers."""
    told = f"workers and batches take {need / 2**20:.0f} MiB, {ram / 2**20:.0f} may be taken"
    return UsageError(told, "fewer workers=, a smaller batch, or a larger ram=")


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
    least = (least_s(near) - _starts(near)) / len(near)
    each = min(max(TRY_S, least), (spare_s - _starts(near)) / len(near))
    return each if each >= least and len(near) > 1 else 0.0


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
