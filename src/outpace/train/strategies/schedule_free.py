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
from outpace.train.strategies.ema import SHORT

if TYPE_CHECKING:
    from outpace.train.run import Run

WARMUP, RISE = 100, 0.05
"""steps over which the rate rises, and share of all of them, or of the time, where that is less"""


@final
class ScheduleFreeAdamW(Optimizer):
    """AdamW of Defazio et al. 2024, the weights being y during training.

    z moves as AdamW's weights do, on gradients at y; x is the mean of all z, weighted by the square of
    the rate; y lies between, at ``betas[0]`` of the way from z to x. x is validated and kept. The second
    moment is corrected in the denominator alone, as in the authors' code: algorithm 1 of the paper has that
    correction in the rate, and so in the decay and in the weights of the mean. These go by the rate as it is
    at each step, as there; the code takes the largest one so far. Gradients are to be dense.
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
        if gradient.is_sparse:
            raise UsageError(
                "schedule_free: the gradient of a weight is sparse",
                "make its layer without sparse=True",
            )
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

    @torch.no_grad()
    def put_mean(self) -> None:
        """Have the weights be x, when no step is to follow."""
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.copy_(self.averaged(parameter, group))

    def averaged(self, y: torch.Tensor, group: dict[str, Any]) -> torch.Tensor:
        """Of a weight, x."""
        state = self.state.get(y)
        return y.lerp(state["z"], 1.0 - 1.0 / group["betas"][0]) if state else y


@final
class ScheduleFree(Course):
    """AdamW at a constant rate; the mean of its weights is validated and kept.

    What: gradients are taken between the weights and their mean, at ``betas[0]`` of the way to the mean
    (`ScheduleFreeAdamW`); ``rate`` is reached after the first 100 steps, or a twentieth of the training where
    that is less and its end is known, and stays.
    Helps: where the end is not known, as there is no schedule that has to know it: at every moment the
    weights are about as good as those of a schedule that ends then.
    Harms: BatchNorm's statistics are of the weights in training, not of the mean that is validated.
    Weights in half precision are refused: most of what moves them in a step is less than such numbers tell.
    Its step takes longer than that of AdamW in one kernel. It wants a larger rate than AdamW, and in
    very long trainings a larger ``betas[0]``.
    Source: Defazio et al. 2024, arXiv 2405.15682 (The road less scheduled).
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
        if any(weight.dtype in SHORT for weight in run.module.parameters() if weight.requires_grad):
            raise UsageError(
                "schedule_free: weights are in half precision, which rounds its small moves away",
                "give model.float(), and strategies=['bf16', ...] for steps in half precision",
            )
        super().begin(run)
        self.model = run.copy_of_model()
        self.step_end(run)

    def step_end(self, run: Run) -> None:
        """The next step's rate."""
        if run.step <= WARMUP:
            risen = max((run.step + 1) / WARMUP, run.clock.used / RISE)
            run.rates.set(min(1.0, risen))

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
