"""The loss of the newest step, told without making the training wait for it.

From a GPU it comes by a copy that nobody waits for, and is told once the copy's event has passed.
"""

from __future__ import annotations

from typing import Any

import torch

from outpace.measure.dispatch import capturing
from outpace.measure.losses import begin_copy


class NewestLoss:
    """``keep`` is given each step's loss; ``read`` tells the newest that is known by now."""

    def __init__(self) -> None:
        self.newest: torch.Tensor | None = None
        self.value: float | None = None
        self.copying: tuple[torch.Tensor, Any] | None = None

    def keep(self, samples: int, loss: torch.Tensor) -> None:
        """The loss of a step."""
        self.newest = loss

    def read(self) -> float | None:
        """Its value, or that of a step before; None where none is known yet."""
        if capturing():
            return self.value  # asking an event would end a capture
        if self.copying is not None:
            host, event = self.copying
            if not event.query():
                return self.value
            self.value, self.copying = float(host), None
        if self.newest is not None and self.newest.is_cuda:
            self.copying = begin_copy(self.newest)
        elif self.newest is not None:
            self.value = float(self.newest)
        return self.value
