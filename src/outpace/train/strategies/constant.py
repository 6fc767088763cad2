"""constant: SGD with momentum at one rate, the prototype of all training."""

from __future__ import annotations

from typing import final

import torch

from outpace.train.optimizers import sgd
from outpace.train.strategies.base import Course


@final
class Constant(Course):
    """SGD with momentum at a constant rate.

    What: ``rate`` (0.05 where nobody sets it) and Nesterov's ``momentum`` from the first step to the
    last.
    Helps: as the plain start that others are compared with; where nothing is known of how long
    training will take; for streams without an end.
    Harms: what a falling rate gains at the end is never gained; a rate that is right at the beginning
    is too large later.
    Source: Robbins and Monro 1951; Sutskever et al. 2013, "On the importance of initialization and
    momentum in deep learning".
    """

    name = "constant"

    def __init__(
        self, rate: float | None = None, *, momentum: float = 0.9, weight_decay: float = 0.0
    ) -> None:
        super().__init__(rate)
        self.momentum, self.weight_decay = momentum, weight_decay

    def optimizer(self, model: torch.nn.Module) -> torch.optim.Optimizer:
        """SGD."""
        return sgd(model, self.momentum, self.weight_decay)
