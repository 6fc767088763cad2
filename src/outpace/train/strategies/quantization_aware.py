"""quantization_aware: linear layers learn with the rounding that int8 will bring."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, final

import torch
from torch import nn

from outpace.errors import MissingExtra, UsageError
from outpace.train.checkpoint import generators_kept
from outpace.train.strategies.base import Strategy

if TYPE_CHECKING:
    from outpace.train.run import Run

UNROUNDED = "what it validates and keeps is not rounded"


@final
class QuantizationAware(Strategy):
    """Linear layers compute with rounded weights and inputs, so that they learn to bear int8.

    What: from the share ``begin`` of the budget on, torchao's layers stand in for linear ones: weights
    are rounded to int8 with a scale for each output, inputs with a scale and a zero point for each row,
    and gradients pass as if nothing was rounded. Validations are of the rounded model, and only they
    say what is the best. Afterwards the layers are plain again; `outpace.compress` with ways=["int8"]
    makes them int8. Needs the extra `quantize`.
    Helps: where a model loses quality when its weights become int8 after training.
    Harms: where it does not, which is the usual case: a step costs more, and there is nothing to gain.
    Convolutions, embeddings and recurrent layers are not rounded.
    Source: Jacob et al. 2018, arXiv 1712.05877; Bengio et al. 2013, arXiv 1308.3432 (gradients that
    pass the rounding).
    """

    name = "quantization_aware"
    needs = ("an end",)
    clashes = {  # noqa: RUF012
        "ema": UNROUNDED,
        "schedule_free": UNROUNDED,
        "early_stopping": "it may end the training before anything is rounded",
        "target": "a target that is met before anything is rounded would end the training",
    }

    def __init__(self, begin: float = 0.5) -> None:
        if not 0.0 <= begin < 1.0:
            raise UsageError(f"begin={begin:g}", "it is a share of the budget, below 1")
        self.first = begin
        self.layers: dict[str, nn.Linear] = {}
        """those that others stand in for"""

    def prepare(self, run: Run) -> None:
        """See whether there is something to round."""
        if find_spec("torchao") is None:
            raise MissingExtra("torchao", "quantize")
        if not linear(run.module):
            raise UsageError("quantization_aware: the model has no linear layer", "leave it out")

    def begin(self, run: Run) -> None:
        """It may be time already."""
        if run.clock.used >= self.first:
            self.round(run)

    def step_end(self, run: Run) -> None:
        """It may be time."""
        if not self.layers and run.clock.used >= self.first:
            self.round(run)
            run.best = None  # it was not rounded

    def round(self, run: Run) -> None:
        """From here on; the layers are known before the first is replaced, should that be interrupted."""
        self.layers = linear(run.module)
        rounding(run.module)

    def over(self, run: Run) -> None:
        """Leave the layers as they came."""
        plain(run.module, self.layers)
        self.layers = {}


def linear(model: nn.Module) -> dict[str, nn.Linear]:
    """The linear layers inside of a model, by name."""
    return {
        name: layer for name, layer in model.named_modules() if name and type(layer) is nn.Linear
    }


def rounding(model: nn.Module) -> None:
    """Have others, which round, stand in for a model's linear layers; their weights are the same objects."""
    from torchao.quantization import quantize_
    from torchao.quantization.qat import IntxFakeQuantizeConfig, QATConfig

    config = QATConfig(
        activation_config=IntxFakeQuantizeConfig(torch.int8, "per_token", is_symmetric=False),
        weight_config=IntxFakeQuantizeConfig(torch.int8, "per_channel", is_symmetric=True),
        step="prepare",
    )
    with generators_kept():  # they are made with random weights first
        quantize_(model, config, filter_fn=lambda layer, name: type(layer) is nn.Linear)


def plain(model: nn.Module, layers: Mapping[str, nn.Linear]) -> None:
    """Put layers back in their places."""
    for name, layer in layers.items():
        parent, _, own = name.rpartition(".")
        setattr(model.get_submodule(parent), own, layer.train(model.training))
