"""ema: averaged weights, which are validated and kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

import torch
from torch.optim.swa_utils import get_ema_multi_avg_fn

from outpace.errors import UsageError
from outpace.seams.batch import to_float32
from outpace.train.checkpoint import copied
from outpace.train.layers import fit_buffers, take_buffers, with_later_buffers
from outpace.train.strategies.base import Strategy

if TYPE_CHECKING:
    from outpace.train.run import Run

SHORT = (torch.bfloat16, torch.float16)
"""numbers so short that a thousandth of the way is rounded to nothing"""


@final
class Ema(Strategy):
    """Averaged weights are validated and kept in the place of those that are trained.

    What: after every ``every``-th step the average moves towards the weights: ``a = d a + (1 - d) w``,
    with d = ``decay`` to the power of ``every``, but at the n-th time no more than (1 + n) / (10 + n). Until
    that is the larger one, with the defaults after about 9,000 steps, ``decay`` plays no part: weights count
    by about the eighth power of their step, and are a tenth of the training old on average. Of weights in 16
    bits the average is kept in 32. Buffers, such as the statistics of BatchNorm, are those of the trained
    model.
    Helps: where the rate stays large, or batches are small: the noise of single steps averages out,
    as a falling rate would have it.
    Harms: nothing much beside a rate that falls to zero, where it adds nothing; costs a copy of the
    weights and the time of the average.
    Source: Polyak and Juditsky 1992; Izmailov et al. 2018, arXiv 1803.05407; Morales-Brotons et al.
    2024, arXiv 2411.18704; powers of the step: Karras et al. 2024, arXiv 2312.02696.
    """

    name = "ema"
    sets = ("the weights that are kept",)

    def __init__(self, decay: float = 0.999, *, every: int = 4) -> None:
        if not 0.0 <= decay <= 1.0 or every < 1:
            given = f"decay={decay:g}, every={every}"
            raise UsageError(given, "decay is a share, every 1 step or more")
        self.decay, self.every = decay, every
        self.model: torch.nn.Module | None = None
        self.means: list[torch.Tensor] = []
        self.trained: list[torch.Tensor] = []
        """averaged weights, and those of the model"""
        self.longer: dict[str, torch.Tensor] = {}
        """by name those of the averaged weights that are short in the model"""
        self.averaged = 0
        self._state: dict[str, Any] | None = None

    def prepare(self, run: Run) -> None:
        """Nothing was averaged yet."""
        self.model, self._state, self.averaged, self.longer = None, None, 0, {}

    def begin(self, run: Run) -> None:
        """The average begins with the weights as they are."""
        self.model = run.copy_of_model()
        if self._state is not None:
            run.load_weights(self.model, with_later_buffers(self._state["model"], self.model))
            self.averaged = self._state["averaged"]
        own = dict(self.model.named_parameters())
        self.longer = {n: w.detach().float() for n, w in own.items() if w.dtype in SHORT}
        if self._state is not None:
            self.set_longer(run.placed(self._state["longer"], self.longer))
        self._state = None
        # Whole numbers, as of positions or of quantized weights, are not learnt.
        learnt = {n for n, w in own.items() if w.is_floating_point() or w.is_complex()}
        self.means = [w for n, w in {**own, **self.longer}.items() if n in learnt]
        self.trained = [w for n, w in run.module.named_parameters() if n in learnt]

    def step_end(self, run: Run) -> None:
        """Move the average."""
        if run.step % self.every == 0:
            self.averaged += 1
            soon = (1 + self.averaged) / (10 + self.averaged)
            decay = min(self.decay**self.every, soon)
            average = get_ema_multi_avg_fn(decay)  # type: ignore[no-untyped-call]
            average(self.means, [to_float32(each.detach()) for each in self.trained], self.averaged)

    @torch.no_grad()
    def validates(self, run: Run) -> torch.nn.Module | None:
        """The averaged model, with the buffers of the trained one."""
        assert self.model is not None
        own = dict(self.model.named_parameters())
        for name, mean in self.longer.items():
            own[name].copy_(mean)
        take_buffers(self.model, run.module)
        return self.model

    def state_dict(self) -> dict[str, Any]:
        """The average."""
        model = self.model.state_dict() if self.model is not None else None
        return {"model": model, "longer": dict(self.longer), "averaged": self.averaged}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there; before `begin` there is no model to put it into yet."""
        if self.model is None:
            self._state = copied(state)
        else:
            fit_buffers(self.model, state["model"])
            self.model.load_state_dict(with_later_buffers(state["model"], self.model))
            self.set_longer(state["longer"])
            self.averaged = state["averaged"]

    @torch.no_grad()
    def set_longer(self, means: dict[str, torch.Tensor]) -> None:
        """Go on with those that are not in the copy."""
        for name, mean in means.items():
            self.longer[name].copy_(mean)
