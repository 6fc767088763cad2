"""What a training gave."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
import torch


class Row(msgspec.Struct, frozen=True):
    """A line of the history: an epoch's end, or a validation. ``seconds``: of training until then.

    ``train_loss``: mean over the steps since the row before; ``rate``: of the first group of weights.
    """

    epoch: int
    step: int
    seconds: float
    train_loss: float | None
    valid_loss: float | None = None
    metric: float | None = None
    rate: float | None = None


@dataclass(frozen=True)
class Best:
    """The best validation so far, and the weights that gave it."""

    row: Row
    weights: dict[str, Any]


@dataclass(frozen=True)
class Result:
    """``stopped``: why it ended. ``metric``: the best, or the lowest validation loss where there is no
    metric; ``weights``: those that gave it, or the last ones where nothing was validated; the model
    holds them too. ``time_to_target_s``: None where there was no target or it was not reached.
    """

    stopped: str
    steps: int
    epochs: int
    seconds: float
    metric: float | None
    best: Row | None
    time_to_target_s: float | None
    history: tuple[Row, ...]
    notes: tuple[str, ...]
    weights: dict[str, torch.Tensor]

    def told(self) -> dict[str, Any]:
        """All but the weights, as plain values."""
        plain = {k: v for k, v in vars(self).items() if k != "weights"}
        found: dict[str, Any] = msgspec.to_builtins({"schema": 1, **plain})
        return found
