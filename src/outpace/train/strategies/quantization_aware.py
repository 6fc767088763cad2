"""quantization_aware: layers learn with the rounding that int8 will bring."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, final

import torch
from torch import nn

from outpace.errors import MissingExtra, UsageError
from outpace.seams.generators import generators_kept
from outpace.train.compress.int8 import eligible, put
from outpace.train.compress.straight import as_they_are, round_weights
from outpace.train.strategies.base import Strategy

if TYPE_CHECKING:
    from outpace.train.run import Run

UNROUNDED = "what it validates and keeps is not rounded"


@final
class QuantizationAware(Strategy):
    """Layers compute with rounded weights, and linear ones with rounded inputs, so that they bear int8.

    What: those that `outpace.compress` makes int8, but for recurrent ones, from the share ``begin`` of
    the budget on. Weights of convolutions and embeddings are rounded as it does
    (`outpace.train.compress.straight`). torchao's layers stand in for linear ones: weights are rounded
    to int8 with a scale for each output, inputs with a scale and a zero point for each row; they need
    the extra `quantize`. Gradients pass as if
    nothing was rounded. Validations are of the rounded model, and only they say what is the best.
    Afterwards the layers are plain again; `outpace.compress` with ways=["int8"] makes them int8.
    Helps: where a model loses quality when its weights become int8 after training.
    Harms: where it does not, which is the usual case: a step costs more, and there is nothing to gain.
    Recurrent layers and attention are not rounded, nor are layers of fewer than 256 weights.
    Source: Jacob et al. 2018, arXiv 1712.05877; Bengio et al. 2013, arXiv 1308.3432 (gradients that
    pass the rounding).
    """

    name = "quantization_aware"
    needs = ("an end",)
    whole = "other layers would stand where the weights of shards are put together"
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
        self.layers: dict[str, nn.Module] = {}
        """those that are rounded, by name"""

    def prepare(self, run: Run) -> None:
        """See whether there is something to round."""
        layers = roundable(run.module)
        if not layers:
            raise UsageError(
                "quantization_aware: no layer of the model has weights that become int8",
                "leave it out",
            )
        if linear(layers) and find_spec("torchao") is None:
            raise MissingExtra("torchao", "quantize")

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
        """From here on; the layers are known before the first is changed, should that be interrupted."""
        self.layers = roundable(run.module)
        rounding(run.module, self.layers)

    def over(self, run: Run) -> None:
        """Leave the layers as they came."""
        plain(run.module, self.layers)
        self.layers = {}


def roundable(model: nn.Module) -> dict[str, nn.Module]:
    """Those that become int8 and whose weights can be rounded at each call."""
    found = eligible(model)
    return {name: layer for name, layer in found.items() if not isinstance(layer, nn.RNNBase)}


def linear(layers: Mapping[str, nn.Module]) -> dict[str, nn.Module]:
    """Those that are linear."""
    return {name: layer for name, layer in layers.items() if type(layer) is nn.Linear}


def rounding(model: nn.Module, layers: Mapping[str, nn.Module]) -> None:
    """Have layers of a model round, or others stand in for them; weights are the same objects."""
    replaced = linear(layers)
    if replaced:
        by_torchao(model, replaced)
    for name in layers.keys() - replaced.keys():
        round_weights(layers[name])


def by_torchao(model: nn.Module, layers: Mapping[str, nn.Module]) -> None:
    """Have its layers stand in for these linear ones, one for each by all of its names."""
    from torchao.quantization import quantize_
    from torchao.quantization.qat import IntxFakeQuantizeConfig, QATConfig

    config = QATConfig(
        activation_config=IntxFakeQuantizeConfig(torch.int8, "per_token", is_symmetric=False),
        weight_config=IntxFakeQuantizeConfig(torch.int8, "per_channel", is_symmetric=True),
        step="prepare",
    )
    first = {id(layer): name for name, layer in reversed(list(layers.items()))}
    names = set(first.values())
    with generators_kept():  # they are made with random weights first
        quantize_(model, config, filter_fn=lambda layer, name: name in names)
    for name, layer in layers.items():
        put(model, name, model.get_submodule(first[id(layer)]))


def plain(model: nn.Module, layers: Mapping[str, nn.Module]) -> None:
    """Put layers back in their places, and have them compute with their weights as they are."""
    for name, layer in layers.items():
        as_they_are(layer)
        put(model, name, layer.train(model.training))
