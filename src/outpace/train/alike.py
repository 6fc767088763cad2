"""The loss of a model that gives the same for all samples: what there is to lose by unlearning.

Not known where the model itself tells its loss, or is asked by the loss for more than its outputs.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, final

import torch

from outpace.seams.batch import map_tensors
from outpace.train.layers import traceless, with_later_buffers

if TYPE_CHECKING:
    from outpace.train.run import Run


@final
class Alike(torch.nn.Module):
    """Gives for each sample the mean of what a model gives for all of them."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, *given: Any, **named: Any) -> Any:
        """As the model's."""
        return map_tensors(self.model(*given, **named), alike)


def alike(outputs: torch.Tensor) -> torch.Tensor:
    """Their mean over samples, for each of them."""
    if not (outputs.dim() and outputs.is_floating_point()):
        return outputs
    return outputs.mean(0, keepdim=True).expand_as(outputs).contiguous()


def loss_of_none(run: Run, weights: dict[str, Any], batch: Any) -> float:
    """With those weights in a copy of the model, over a batch; 0 where it is not known."""
    try:
        model = run.copy_of_model()
        run.load_weights(model, with_later_buffers(weights, model))
        with traceless(model), run.objective.kept():
            own = float(run.objective(Alike(model), batch))
    except Exception:  # the model cannot be copied, or the loss asks it for something else
        own = 0.0
    (mean,) = run.mean_of_ranks([own if math.isfinite(own) else 0.0])
    return mean
