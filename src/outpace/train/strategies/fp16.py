"""fp16: the model is called in float16 to learn, its loss scaled."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, final

import torch

from outpace.errors import UsageError
from outpace.seams.optimizer import begin_momenta
from outpace.train.losses import TOGETHER
from outpace.train.strategies.base import Strategy

if TYPE_CHECKING:
    from outpace.train.run import Run


@final
class Fp16(Strategy):
    """Matrix products and convolutions of the steps are in float16, and the loss is scaled.

    What: the model is called under ``torch.autocast``; weights, gradients and the optimizer stay in
    float32, and so does a loss of outputs. The loss is multiplied by torch's GradScaler before the backward
    pass, as small gradients would be zero in float16, and gradients are divided again before strategies,
    callbacks and the optimizer have them. Where one is not finite then, the step moves nothing, and the scale
    is halved; after 2,000 steps without that it is doubled. Validations are in float32 as ever.
    Helps: on GPUs with units for float16 and none for bfloat16 (Volta and Turing, such as V100 and T4), where
    steps are bound by arithmetic: convolutions and transformers take half of the time.
    Harms: activations above 65,504 overflow, and a model that makes such moves nothing; on all other GPUs
    `bf16` is simpler, and CPUs have no units for it. "auto" takes it only on GPUs without bfloat16, where
    steps are faster beyond doubt, and gradients the same but for a tenth at most (`outpace.train.faster`).
    Source: Micikevicius et al. 2018, arXiv 1710.03740, sections 3.1 and 3.2.
    """

    name = "fp16"
    sets = ("the precision",)
    whole = (
        "each rank would look for gradients that are not finite among its own part of them alone"
    )
    clashes = {  # noqa: RUF012
        "quantization_aware": "rounding to int8 would be learnt of what is rounded already"
    }

    def __init__(self) -> None:
        self.scaler: torch.amp.GradScaler | None = None

    def prepare(self, run: Run) -> None:
        """From the first call on. Raises UsageError where weights are in float16 themselves."""
        kinds = {weight.dtype for group in run.optimizer.param_groups for weight in group["params"]}
        if torch.float16 in kinds:
            raise UsageError(
                "fp16 keeps weights in float32, and some of the model's are in float16",
                "give model.float()",
            )
        device = run.device.type
        run.objective.precision = functools.partial(torch.autocast, device, torch.float16)
        begin_momenta(run.optimizer)
        self.scaler = run.scaler = torch.amp.GradScaler(device)

    def step_end(self, run: Run) -> None:
        """See to it that a scale is left: of zero nothing would ever be finite again."""
        if run.step % TOGETHER == 0 and run.scaler.get_scale() < 1.0:
            run.scaler.update(1.0)
            run.note(
                "fp16: gradients are not finite in float16 even where the loss is not scaled: such steps "
                "move nothing; float32, or bfloat16, has room for them"
            )

    def state_dict(self) -> dict[str, Any]:
        """The scale, and how many steps it was good for."""
        return {} if self.scaler is None else self.scaler.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        if self.scaler is not None and state:
            self.scaler.load_state_dict(state)
