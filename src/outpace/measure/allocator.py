"""The most that a step takes from the allocator: with what no operator shows, kernels' scratch memory.

On CUDA the allocator keeps count. On the CPU torch's profiler is told of each allocation; of what is
freed it knows the size only if it saw it allocated, so that it is to be on for a step before the one
that counts. Where the script is profiling already nothing is measured.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, record_function

MARK = "outpace: from here on"


class AllocatorPeak:
    """``bytes``: the most held above the state at ``mark``; None where it could not be measured.

    ``held``: what was held then; None on the CPU, where nothing tells. ``pieces``: what the allocator had
    taken of the device at the peak beyond that, in pieces that it could not use.
    """

    def __init__(self, device: str) -> None:
        self.device = device
        self.bytes: int | None = None
        self.held: int | None = None
        self.pieces = 0
        self._profile: Any = None

    def __enter__(self) -> AllocatorPeak:
        """Begin to look."""
        if self.device != "cuda" and not torch._C._autograd._profiler_enabled():
            self._profile = profile(activities=[ProfilerActivity.CPU], profile_memory=True)
            self._profile.__enter__()
        return self

    def mark(self) -> None:
        """What is held now is where it counts from."""
        if self.device == "cuda":
            torch.cuda.synchronize()
            torch.cuda.empty_cache()  # what the step does not need was of other steps
            torch.cuda.reset_peak_memory_stats()
            self.held = torch.cuda.memory_allocated()
        elif self._profile is not None:
            with record_function(MARK):
                pass

    def __exit__(self, *exception: object) -> None:
        """End; an exception passes through."""
        if self.held is not None:
            most = torch.cuda.max_memory_allocated()
            self.bytes = most - self.held
            self.pieces = torch.cuda.max_memory_reserved() - most
        elif self._profile is not None:
            self._profile.__exit__(None, None, None)
            events = self._profile.profiler.kineto_results.events()
            since = max((e.start_ns() for e in events if e.name() == MARK), default=0)
            self.bytes = highest(
                (event.start_ns(), event.nbytes())
                for event in events
                if event.name() == "[memory]" and event.start_ns() >= since
            )


def highest(changes: Any) -> int:
    """The highest sum of changes, in the order of their times."""
    now = most = 0
    for _, change in sorted(changes, key=lambda pair: pair[0]):
        now += change
        most = max(most, now)
    return most
