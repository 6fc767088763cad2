"""What a model costs whatever its batch, where no loader can be made to give another one.

The model is called again on what the script last called it with, on all of the rows, half and a
quarter of them, in turns, forward and backward. Gradients go to nobody: the script's are left alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from time import perf_counter

import torch

from outpace.measure.again import Call, last_call, unseen
from outpace.measure.arms import settled
from outpace.measure.statistics import Line, line
from outpace.seams.batch import tensors_in
from outpace.seams.host import Host
from outpace.seams.module import is_compiled

PARTS = (1.0, 0.5, 0.25)
"""of the rows"""
FEWEST_ROWS = 8
FEWEST_ROUNDS, MOST_ROUNDS = 4, 30
SECONDS = 1.0


def fixed_cost(host: Host, seconds: float = SECONDS) -> Line | None:
    """Seconds of a forward and backward pass over the part of the batch; None where it can't be had.

    Not for models whose tensors have no common first dimension of `FEWEST_ROWS` rows, nor for compiled
    ones, which would be compiled for other shapes.
    """
    call = last_call(host)
    rows = rows_of(call) if call is not None else 0
    if call is None or rows < FEWEST_ROWS or is_compiled(call.module):
        return None
    sizes, times = [], []
    begun = perf_counter()
    try:
        with unseen(host, call.module), torch.enable_grad():
            for index, part in enumerate(turns(begun, seconds)):
                spent = timed(call, rows, part)
                if index >= len(PARTS):  # the first round builds kernels
                    sizes.append(part)
                    times.append(spent)
    except Exception:
        return None  # this model does not take another number of rows
    return line(sizes, times)


def turns(begun: float, seconds: float) -> Iterator[float]:
    """Parts of the batch, each round the other way round than the one before."""
    for index in range(MOST_ROUNDS):
        if index > FEWEST_ROUNDS and perf_counter() - begun > seconds:
            return
        yield from PARTS[:: 1 if index % 2 else -1]


def rows_of(call: Call) -> int:
    """The first dimension that all inputs have in common; 0 where there is none."""
    firsts = {
        tensor.shape[0] if tensor.dim() else 0 for tensor in tensors_in((call.args, call.kwargs))
    }
    return firsts.pop() if len(firsts) == 1 else 0


def timed(call: Call, rows: int, part: float) -> float:
    """Seconds of one forward and backward pass over a part of the rows."""
    count = max(1, round(part * rows))
    args = [value[:count] for value in call.args]
    kwargs = {name: value[:count] for name, value in call.kwargs.items()}
    weights = [weight for weight in call.module.parameters() if weight.requires_grad]
    settled()
    begun = perf_counter()
    out = call.made_of(args, kwargs)
    sums = [tensor.float().sum() for tensor in tensors_in(out) if tensor.requires_grad]
    torch.autograd.grad(sums, weights, allow_unused=True)
    settled()
    return perf_counter() - begun
