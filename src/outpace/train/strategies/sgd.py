"""sgd: SGD with momentum, whatever the rate's course is."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import torch

from outpace.errors import UsageError
from outpace.train.optimizers import sgd
from outpace.train.strategies.base import Strategy

if TYPE_CHECKING:
    from outpace.train.run import Run


@final
class Sgd(Strategy):
    """SGD with Nesterov's momentum in the place of AdamW, with any course of the rate.

    What: the optimizer alone: the rate is that of `constant`, `one_cycle`, `linear` or `plateau`, the
    largest one 0.05 where nobody sets or finds it.
    Helps: convolutional nets with BatchNorm, and small data that many weights can fit: what it finds
    often holds better for new data than what AdamW finds. Half of AdamW's memory.
    Harms: transformers, embeddings of rare tokens and layers without norms, whose gradients differ in
    size by far: one rate for all is too small for some of them. The rate has to be found with more
    care.
    Source: Sutskever et al. 2013, "On the importance of initialization and momentum in deep learning";
    Wilson et al. 2017, arXiv 1705.08292 (The marginal value of adaptive gradient methods).
    """

    name = "sgd"
    sets = ("the optimizer",)

    def __init__(self, *, momentum: float = 0.9, weight_decay: float = 0.0) -> None:
        self.momentum, self.weight_decay = momentum, weight_decay

    def optimizer(self, model: torch.nn.Module) -> torch.optim.Optimizer:
        """SGD."""
        return sgd(model, self.momentum, self.weight_decay)

    def begin(self, run: Run) -> None:
        """See that it is used."""
        if not isinstance(run.optimizer, torch.optim.SGD):
            kind = type(run.optimizer).__name__
            raise UsageError(f"sgd is an optimizer, and optimizer= is {kind}", "leave one out")
