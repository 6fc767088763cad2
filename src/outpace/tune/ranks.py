"""The experiment on several ranks that train together: the same steps without their exchange.

No rank may be in an arm without the others: one that exchanges gradients would wait for those that
do not. So the first rank decides at which steps the arms begin and end, and tells the others
through the store by which they met; from then on each follows its count of steps, which they share
as they exchange gradients in each of them.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from time import perf_counter, process_time

from torch import distributed

from outpace.measure.arms import Contest, settled
from outpace.records.arm import COMMUNICATION_FREE
from outpace.seams.host import Host
from outpace.seams.setup import AS_IS, Setup

DECIDED_AT = 8
"""steps"""
BLOCK_S = 0.25
WATCH_SHARE = 0.3
SPENT_SHARE = 0.8
"""shares of the time in which the training is watched as it is, and in all"""
MOST_ROUNDS = 24
KEY = "outpace/schedule"
PATIENCE = timedelta(seconds=30)


@dataclass(frozen=True)
class Schedule:
    """Steps at which the arms begin, steps of a block and rounds."""

    begin: int
    block: int
    rounds: int


def world() -> int:
    """Processes that train together, as their launcher tells each of them."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def several_ranks() -> bool:
    """Whether this process is one of several that train together."""
    return world() > 1


def beside() -> list[int]:
    """Processes of all ranks here, workers included, but for this one: what one launcher started."""
    import psutil

    try:
        found = psutil.Process(os.getppid()).children(recursive=True)
    except psutil.Error:
        return []
    return [each.pid for each in found if each.pid != os.getpid()]


def started() -> list[int]:
    """Processes that this one has started, by themselves or by others of them."""
    import psutil

    try:
        return [each.pid for each in psutil.Process().children(recursive=True)]
    except psutil.Error:
        return []


def schedule(step_s: float, seconds: float) -> Schedule:
    """For steps of this length and so much time; a block's first step does not count."""
    watched = max(8, math.ceil(WATCH_SHARE * seconds / step_s))
    block = 1 + max(2, math.ceil(BLOCK_S / step_s))
    rounds = int((SPENT_SHARE - WATCH_SHARE) * seconds / (2 * block * step_s))
    return Schedule(DECIDED_AT + watched, block, min(MOST_ROUNDS, max(3, rounds)))


def agree(own: Schedule) -> Schedule:
    """The first rank's. Raises RuntimeError or ValueError where the ranks have not met."""
    store = distributed.distributed_c10d._get_default_store()
    if distributed.get_rank() == 0:
        store.set(KEY, json.dumps(asdict(own)))
        return own
    store.wait([KEY], PATIENCE)
    return Schedule(**json.loads(store.get(KEY)))


def without_exchange(host: Host, agreed: Schedule, contest: Contest) -> Iterator[None]:
    """Blocks of steps as they are and without exchange, in turns; each ``yield`` is a step."""
    while host.steps < agreed.begin:
        yield None
    for index in range(agreed.rounds):
        times = {}
        order = list(contest.arms) if index % 2 == 0 else list(reversed(contest.arms))
        for name in order:
            host.switch(contest.arms[name])
            yield None
            settled(*host.roots)  # all ranks have asked theirs for the same by now
            wall, cpu = perf_counter(), process_time()
            for _ in range(agreed.block - 1):
                yield None
            settled(*host.roots)
            steps = agreed.block - 1
            times[name] = (perf_counter() - wall) / steps, (process_time() - cpu) / steps
        (wall, cpu), (free_wall, free_cpu) = times["as_is"], times[COMMUNICATION_FREE]
        contest.pairs.setdefault(COMMUNICATION_FREE, []).append((wall, free_wall, cpu, free_cpu))
    host.switch(AS_IS)


def exchange_arms() -> dict[str, Setup]:
    """The step as it is, and without exchange."""
    return {"as_is": AS_IS, COMMUNICATION_FREE: replace(AS_IS, free_communication=True)}
