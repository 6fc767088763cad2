"""The loss of each step, kept without making the training wait for it.

On a GPU values are copied to the host in groups by a copy that nobody waits for, and read once the
copy's event has passed.
"""

from __future__ import annotations

import math
from typing import Any

import torch

GROUP = 128


class Losses:
    """Samples seen and loss values."""

    def __init__(self) -> None:
        self.each = 0
        """samples of the first step"""
        self.samples: list[int] = []
        self.values: list[float] = []
        self.waiting: list[torch.Tensor] = []
        self.copying: list[tuple[torch.Tensor, Any]] = []

    def add(self, samples: int, loss: torch.Tensor) -> None:
        """Keep a loss that is not read yet."""
        self.each = self.each or samples
        self.samples.append(samples)
        if loss.device.type == "cpu" and not self.waiting and not self.copying:
            # A small tensor that is kept splits the heap for good: memory grew by 1 MiB a step.
            self.values.append(float(loss))
            return
        self.waiting.append(loss)
        if len(self.waiting) >= GROUP:
            self._begin_copy()

    def _begin_copy(self) -> None:
        group, self.waiting = self.waiting, []
        if any(v.dtype != group[0].dtype or v.device != group[0].device for v in group):
            group = [v.float().cpu() for v in group]
        stacked = torch.stack(group)
        if stacked.is_cuda:
            self.copying.append(begin_copy(stacked))
        else:
            self.copying.append((stacked, None))
        while self.copying and (self.copying[0][1] is None or self.copying[0][1].query()):
            self.values += self.copying.pop(0)[0].tolist()

    def read(self) -> tuple[list[int], list[float]]:
        """All losses so far; waits for the newest."""
        if self.waiting:
            self._begin_copy()
        for host, event in self.copying:
            if event is not None:
                event.synchronize()
            self.values += host.tolist()
        self.copying = []
        return self.samples[: len(self.values)], self.values

    def forget(self) -> None:
        """Those by now were of another training."""
        self.read()
        self.samples, self.values = [], []

    def first_bad(self) -> int | None:
        """The first loss that was NaN or infinite, by its place among those kept."""
        _, values = self.read()
        return next((i for i, v in enumerate(values) if not math.isfinite(v)), None)


def begin_copy(loss: torch.Tensor) -> tuple[torch.Tensor, Any]:
    """Where losses on a GPU will be on the host, and the event after which they are there."""
    host = torch.empty(loss.shape, dtype=loss.dtype, device="cpu", pin_memory=True)
    host.copy_(loss, non_blocking=True)
    event = torch.cuda.Event()  # type: ignore[no-untyped-call]
    event.record(torch.cuda.current_stream(loss.device))
    return host, event
