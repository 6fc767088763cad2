"""What a model costs whatever its batch, where no loader can be made to give another one.

The model is called again on what the script last called it with, on all of the rows, half and a
quarter of them, in turns, forward and backward. Gradients go to nobody: the script's are left alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from time import perf_counter
from typing import Any

import torch

from outpace.measure.again import Call, last_call, unseen
from outpace.measure.arms import settled
from outpace.measure.flops import StepCounter
from outpace.measure.statistics import Line, line
from outpace.seams.batch import tensors_in
from outpace.seams.compiled import graphs_compiled
from outpace.seams.host import Host
from outpace.seams.module import is_compiled

PARTS = (1.0, 0.5, 0.25)
"""of the rows"""
FEWEST_ROWS = 8
FEWEST_ROUNDS, MOST_ROUNDS = 4, 30
SECONDS = 1.0


def fixed_cost(host: Host) -> Line | None:
    """Seconds of a forward and backward pass over the part of the batch; None where it can't be had.

    Not for models whose tensors have no common first dimension of `FEWEST_ROWS` rows, nor for compiled
    ones, which would be compiled for other shapes.
    """
    found = call_by_rows(host)
    if found is None:
        return None
    call, rows = found
    sizes, times = [], []
    begun = perf_counter()
    try:
        with unseen(host, call.module), torch.enable_grad():
            for index, part in enumerate(turns(begun)):
                spent = timed(call, rows, part)
                if index >= len(PARTS):  # the first round builds kernels
                    sizes.append(part)
                    times.append(spent)
    except Exception:
        return None  # this model does not take another number of rows
    return line(sizes, times)


def called_by_rows(host: Host) -> float:
    """Share of a forward pass's operators that are called for each row of the batch anew; 0 if not known.

    By how many there are for half of the rows. Where a model loops over its batch, halving that halves the
    calls too, and what they cost does not show as fixed.
    """
    found = call_by_rows(host)
    if found is None:
        return 0.0
    call, rows = found
    try:
        with unseen(host, call.module), torch.enable_grad():
            half, whole = (operators(call, rows // part) for part in (2, 1))
    except Exception:
        return 0.0
    share = (whole - half) / (1 - (rows // 2) / rows) / max(1, whole)
    return min(1.0, max(0.0, share))


def operators(call: Call, count: int) -> int:
    """How many a forward pass over the first ``count`` rows calls."""
    args, kwargs = first_rows(call, count)
    counter = StepCounter()
    with counter:
        call.made_of(args, kwargs)
    return counter.count.operations


def first_rows(call: Call, count: int) -> tuple[list[Any], dict[str, Any]]:
    """The call's inputs with so many rows."""
    return [v[:count] for v in call.args], {k: v[:count] for k, v in call.kwargs.items()}


def turns(begun: float) -> Iterator[float]:
    """Parts of the batch, each round the other way round than the one before."""
    for index in range(MOST_ROUNDS):
        if index > FEWEST_ROUNDS and perf_counter() - begun > SECONDS:
            return
        yield from PARTS[:: 1 if index % 2 else -1]


def call_by_rows(host: Host) -> tuple[Call, int] | None:
    """The model's last call and its rows, where it can be made on a part of them."""
    call = last_call(host)
    rows = rows_of(call) if call is not None else 0
    if call is None or rows < FEWEST_ROWS or is_compiled(call.module) or graphs_compiled():
        return None
    if host.fed and rows != host.batch_size:
        return None  # its first dimension is another, as time is
    return call, rows


def rows_of(call: Call) -> int:
    """The first dimension that all inputs have in common; 0 where there is none."""
    firsts = {
        tensor.shape[0] if tensor.dim() else 0 for tensor in tensors_in((call.args, call.kwargs))
    }
    return firsts.pop() if len(firsts) == 1 else 0


def timed(call: Call, rows: int, part: float) -> float:
    """Seconds of one forward and backward pass over a part of the rows."""
    count = max(1, round(part * rows))
    args, kwargs = first_rows(call, count)
    weights = [weight for weight in call.module.parameters() if weight.requires_grad]
    settled(call.module)
    begun = perf_counter()
    out = call.made_of(args, kwargs)
    sums = [tensor.float().sum() for tensor in tensors_in(out) if tensor.requires_grad]
    torch.autograd.grad(sums, weights, allow_unused=True)
    settled(call.module)
    return perf_counter() - begun
