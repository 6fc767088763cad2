"""What a validation pays for keeping graphs that nobody asks for: its last call again, with and without."""

from __future__ import annotations

from time import perf_counter

import torch

from outpace.measure.again import Call, last_judgement, unseen
from outpace.measure.arms import settled
from outpace.measure.statistics import median
from outpace.seams.host import Host
from outpace.seams.modes import evaluating

FEWEST_ROUNDS, MOST_ROUNDS = 3, 30
SECONDS = 0.5


def times_with_graphs(host: Host, seconds: float = SECONDS) -> float | None:
    """How many times as long a call takes with gradients on; None where it can't be had again."""
    call = last_judgement(host)
    if call is None:
        return None
    took: dict[bool, list[float]] = {True: [], False: []}
    begun = perf_counter()
    try:
        with unseen(host, call.module), evaluating(call.module):
            for index in range(MOST_ROUNDS):
                for graphs in (True, False) if index % 2 else (False, True):
                    spent = timed(call, graphs)
                    if index:  # the first round builds kernels
                        took[graphs].append(spent)
                if index >= FEWEST_ROUNDS and perf_counter() - begun > seconds:
                    break
    except Exception:
        return None  # it does not bear to be called at another time
    return median(took[True]) / median(took[False])


def timed(call: Call, graphs: bool) -> float:
    """Seconds of one call, until what it made is gone."""
    settled(call.module)
    begun = perf_counter()
    with torch.set_grad_enabled(graphs):
        made = call.made_of(call.args, call.kwargs)
    del made
    settled(call.module)
    return perf_counter() - begun
