"""schedule_free: AdamW at one rate, whose averaged weights are as good as those of a falling one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, final

import torch
from torch.optim import Optimizer

from outpace.errors import UsageError
from outpace.train.layers import take_buffers
from outpace.train.optimizers import RATE, groups
from outpace.train.strategies.base import Course

if TYPE_CHECKING:
    from outpace.train.run import Run

WARMUP = 100
"""steps over which the rate rises"""


@final
class ScheduleFreeAdamW(Optimizer):
    """AdamW of Defazio et al. 2024, algorithm 1, the weights being y during training.

    z moves as AdamW's weights do, on gradients at y; x is the mean of all z, weighted by the square of
    the rate; y lies between, at ``betas[0]`` of the way from z to x. x is validated and kept.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = RATE,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.01,
    ) -> None:
        defaults = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        """One step; there is no closure."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self.move(parameter, parameter.grad, group)

    def move(self, y: torch.Tensor, gradient: torch.Tensor, group: dict[str, Any]) -> None:
        """One weight."""
        state, rate, (first, second) = self.state[y], float(group["lr"]), group["betas"]
        if not state:
            state.update(z=y.clone(), square=torch.zeros_like(y), steps=0, sum=0.0)
        state["steps"] += 1
        state["sum"] += rate * rate
        share = rate * rate / state["sum"] if rate else 0.0  # of the newest z in x
        square, z = state["square"], state["z"]
        if y.is_complex():  # both parts by themselves, as AdamW has it
            y, gradient, square, z = map(torch.view_as_real, (y, gradient, square, z))
        square.mul_(second).addcmul_(gradient, gradient, value=1.0 - second)
        root = square.sqrt().div_(math.sqrt(1.0 - second ** state["steps"])).add_(group["eps"])
        move = torch.div(gradient, root).add_(y, alpha=group["weight_decay"])
        y.lerp_(z, share).sub_(move, alpha=rate * (1.0 - first * (1.0 - share)))
        z.sub_(move, alpha=rate)

    def averaged(self, y: torch.Tensor, group: dict[str, Any]) -> torch.Tensor:
        """Of a weight, x."""
        state = self.state.get(y)
        return y.lerp(state["z"], 1.0 - 1.0 / group["betas"][0]) if state else y


@final
class ScheduleFree(Course):
    """AdamW at a constant rate; the mean of its weights is validated and kept.

    What: gradients are taken between the weights and their mean, at ``betas[0]`` of the way to the mean
    (`ScheduleFreeAdamW`); ``rate`` is reached after the first 100 steps and stays.
    Helps: where the end is not known, as there is no schedule that has to know it: at every moment the
    weights are about as good as those of a schedule that ends then.
    Harms: BatchNorm's statistics are of the weights in training, not of the mean that is validated.
    Its step takes longer than that of AdamW in one kernel. It wants a larger rate than AdamW, and in
    very long trainings a larger ``betas[0]``.
    Source: Defazio et al. 2024, arXiv 2405.15682 (The road less scheduled), algorithm 1.
    """

    name = "schedule_free"

    def __init__(
        self,
        rate: float | None = None,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        weight_decay: float = 0.01,
    ) -> None:
        if not (0.0 < betas[0] <= 1.0 and 0.0 <= betas[1] < 1.0):
            hint = "the first is above 0, else the weights hold nothing of the mean, the second below 1"
            raise UsageError(f"betas={betas}", hint)
        super().__init__(rate)
        self.sets = (*self.sets, "the optimizer", "the weights that are kept")
        self.betas, self.weight_decay = betas, weight_decay
        self.model: torch.nn.Module | None = None
        """that the mean is put into"""

    def optimizer(self, model: torch.nn.Module) -> Optimizer:
        """Its own."""
        return ScheduleFreeAdamW(groups(model, self.weight_decay), betas=self.betas)

    def begin(self, run: Run) -> None:
        """The first step's rate."""
        if not isinstance(run.optimizer, ScheduleFreeAdamW):
            kind = type(run.optimizer).__name__
            raise UsageError(
                f"schedule_free has an optimizer of its own, and optimizer= is {kind}",
                "leave one out",
            )
        super().begin(run)
        self.model = run.copy_of_model()
        self.step_end(run)

    def step_end(self, run: Run) -> None:
        """The next step's rate."""
        if run.step <= WARMUP:
            run.rates.set(min(1.0, (run.step + 1) / WARMUP))

    @torch.no_grad()
    def validates(self, run: Run) -> torch.nn.Module | None:
        """The mean, with the buffers of the trained model."""
        assert self.model is not None
        assert isinstance(run.optimizer, ScheduleFreeAdamW)
        trained = dict(zip(run.module.parameters(), self.model.parameters(), strict=True))
        for group in run.optimizer.param_groups:
            for parameter in group["params"]:
                if parameter in trained:  # the others are a loss's
                    trained[parameter].copy_(run.optimizer.averaged(parameter, group))
        take_buffers(self.model, run.module)
        return self.model
