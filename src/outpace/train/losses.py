"""Losses of the steps, read some at a time: to read each would have the device wait."""

from __future__ import annotations

import math
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
        self._odd: float | None = None
        """the last one, where that is not finite"""

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
                if math.isfinite(value):  # and the weights were, whatever the loss before it was
                    self._sum, self._count, self._odd = self._sum + value, self._count + 1, None
                else:
                    self._odd = value
        return self.recent

    def mean(self) -> float | None:
        """Of all since it was last asked, without those that are not finite unless the last one is such."""
        self.read()
        mean = self._sum / self._count if self._count else None
        mean = mean if self._odd is None else self._odd
        self._sum, self._count, self._odd = 0.0, 0, None
        return mean

    def forget(self) -> None:
        """Leave out what came since."""
        self.read()
        self.recent.clear()
        self._sum, self._count, self._odd = 0.0, 0, None

    def state_dict(self) -> dict[str, Any]:
        """All that is known."""
        recent = list(self.read())
        return {"recent": recent, "sum": self._sum, "count": self._count, "odd": self._odd}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on with it."""
        self.recent.extend(state["recent"])
        self._sum, self._count = state["sum"], state["count"]
        self._odd = state.get("odd")  # an older checkpoint has none
