"""Losses of the steps, read some at a time: to read each would have the device wait."""

from __future__ import annotations

from collections import deque
from typing import Any, final

import torch

from outpace.seams.loss import apart

TOGETHER = 32
"""losses that are read at once"""


@final
class Losses:
    """Of one training."""

    def __init__(self) -> None:
        self.recent: deque[float] = deque(maxlen=TOGETHER)
        """the last that were read"""
        self._pending: list[torch.Tensor] = []
        self._sum, self._count = 0.0, 0

    def add(self, loss: torch.Tensor) -> None:
        """A step's loss."""
        self._pending.append(apart(loss))
        if len(self._pending) == TOGETHER:
            self.read()

    def read(self) -> deque[float]:
        """The last losses, the newest included."""
        if self._pending:
            values = torch.stack(self._pending).flatten().tolist()
            self._pending.clear()
            self.recent.extend(values)
            for value in values:
                self._sum += value
            self._count += len(values)
        return self.recent

    def mean(self) -> float | None:
        """Of all since it was last asked."""
        self.read()
        mean = self._sum / self._count if self._count else None
        self._sum, self._count = 0.0, 0
        return mean

    def forget(self) -> None:
        """Leave out what came since."""
        self.read()
        self.recent.clear()
        self._sum, self._count = 0.0, 0

    def state_dict(self) -> dict[str, Any]:
        """All that is known."""
        return {"recent": list(self.read()), "sum": self._sum, "count": self._count}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on with it."""
        self.recent.extend(state["recent"])
        self._sum, self._count = state["sum"], state["count"]
