"""The bytes of a model's file, and how long two models take, side by side.

The time is that of the calls alone, in this process, with torch's threads as they are set.
"""

from __future__ import annotations

import tempfile
import zlib
from collections.abc import Callable
from math import ceil
from time import perf_counter
from typing import Any, NamedTuple

import torch
from torch import nn

from outpace.measure.statistics import FEW, enough, median, paired_gain
from outpace.records.gain import Gain

WARM_UP = 3
"""calls before the first that is timed"""
BLOCK_S = 0.005
"""calls are timed together for at least so long"""
MOST = 200
"""rounds"""
CHUNK = 2**20


class Timed(NamedTuple):
    """Median seconds of a call of both, and the gain of the second over the first."""

    first_s: float
    second_s: float
    gain: Gain


def file_bytes(model: nn.Module) -> tuple[int, int]:
    """Bytes of a model's state dict as torch.save writes it, and of that file after zlib."""
    with tempfile.TemporaryFile() as file:
        torch.save(model.state_dict(), file)
        size = file.tell()
        file.seek(0)
        packer, zipped = zlib.compressobj(), 0
        while chunk := file.read(CHUNK):
            zipped += len(packer.compress(chunk))
        return size, zipped + len(packer.flush())


def paired_times(
    first: nn.Module, second: nn.Module, call: Callable[[nn.Module], Any], time_s: float
) -> Timed:
    """Time both in turns, for about ``time_s`` seconds and at least six rounds."""
    models = (first, second)
    times: tuple[list[float], list[float]] = ([], [])
    with torch.no_grad():
        for model in models:
            for _ in range(WARM_UP):
                call(model)
        calls = ceil(BLOCK_S / max(1e-6, min(_seconds(model, call, 1) for model in models)))
        began = perf_counter()
        while len(times[0]) < MOST:
            for i in (0, 1) if len(times[0]) % 2 else (1, 0):
                times[i].append(_seconds(models[i], call, calls))
            if len(times[0]) >= FEW:
                gain = paired_gain(*times)
                if enough(gain) or perf_counter() - began > time_s:
                    break
    return Timed(median(times[0]), median(times[1]), paired_gain(*times))


def _seconds(model: nn.Module, call: Callable[[nn.Module], Any], calls: int) -> float:
    """Of one call, in the mean of so many."""
    began = perf_counter()
    for _ in range(calls):
        call(model)
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.synchronize()
    return (perf_counter() - began) / calls
