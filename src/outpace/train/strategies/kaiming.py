"""kaiming: first weights whose size suits the activation that comes after them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, final

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from outpace.train.layers import TRANSPOSED, look_at, shared
from outpace.train.strategies.base import Strategy
from outpace.train.strategies.lsuv import drawn_seed

if TYPE_CHECKING:
    from outpace.train.run import Run

FORWARD = {
    "relu",
    "relu6",
    "leaky_relu",
    "elu",
    "selu",
    "celu",
    "gelu",
    "silu",
    "mish",
    "hardswish",
}
"""activations after which He's rule keeps the size of signals"""
BOTH = {"tanh": 5 / 3, "sigmoid": 1.0}
"""those after which Glorot's does, of signals and of gradients, and their gains as torch has them"""
POINTS = 10_000
"""that a gain is reckoned from"""


@final
class Kaiming(Strategy):
    """Weights are drawn with the deviation that the activation after them asks for; biases are zero.

    What: one forward pass of a first batch tells which activation is called next after each linear
    layer and convolution, as a module or as a function. After ReLU and its like the deviation is
    gain / root(inputs), where gain is 1 / root(mean of f(z)^2) for standard normal z, the root of two
    for ReLU; after tanh (gain 5/3), sigmoid and where no activation follows it is gain times
    root(2 / (inputs + outputs)), those of a group where a convolution has groups.
    Helps: nets without norms that are not very deep: torch's own initialisation makes the signals of
    ReLU smaller by more than a half in each layer. `lsuv` measures what this reckons, and is safer.
    Harms: weights that were made or loaded with care are lost; a layer that is to begin at zero (the
    last one of a residual branch) no longer does. Where a norm follows each layer it changes little.
    Transposed convolutions, weights that several modules share and recurrent layers stay as they are.
    Of branches it sees the order of the calls alone.
    Source: He et al. 2015, arXiv 1502.01852, equations 10 and 14; Glorot and Bengio 2010,
    "Understanding the difficulty of training deep feedforward neural networks", equation 16.
    """

    name = "kaiming"
    sets = ("the first weights",)

    def first_weights(self, run: Run) -> None:
        """Draw them."""
        batch = run.train.peek(1)[0]
        following = Following()

        def look(name: str, layer: nn.Module, given: tuple[Any, ...], output: torch.Tensor) -> None:
            following.layer_called(layer)

        with following:
            look_at(run.module, run.objective, batch, look)
        chance = torch.Generator().manual_seed(drawn_seed(run))
        others = shared(run.module)
        kinds: Counter[str] = Counter()
        for layer, (name, gain) in following.found.items():
            if fresh(layer, others):
                draw(layer, name, gain, chance)
                kinds[name or "nothing"] += 1
        told = ", ".join(f"{count} before {name}" for name, count in kinds.items())
        run.note(f"kaiming: weights of {sum(kinds.values())} layers are drawn: {told}")


@final
class Following(TorchFunctionMode):
    """The activation that is called next after each layer, by name, and its gain."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[nn.Module, tuple[str, float]] = {}
        self.last: nn.Module | None = None
        """layer, as long as no activation came after it"""

    def layer_called(self, layer: nn.Module) -> None:
        """Whatever comes next is after this one."""
        self.last = layer
        self.found.setdefault(layer, ("", 1.0))

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Look at a function that is called."""
        name = str(getattr(func, "__name__", "")).rstrip("_")
        if self.last is not None and (name in FORWARD or name in BOTH):
            self.found[self.last] = name, gain_of(name, func, args[1:], kwargs or {})
            self.last = None
        return func(*args, **(kwargs or {}))


def gain_of(
    name: str, func: Callable[..., torch.Tensor], more: tuple[Any, ...], kwargs: dict[str, Any]
) -> float:
    """By how much an activation makes signals smaller; ``more``: its arguments after the first."""
    if name in BOTH:
        return BOTH[name]
    normal = torch.special.ndtri((torch.arange(POINTS) + 0.5) / POINTS)
    given = {key: value for key, value in kwargs.items() if key != "input"}
    return 1.0 / math.sqrt(float(func(normal, *more, **given).square().mean()))


def fresh(layer: nn.Module, others: set[int]) -> bool:
    """Whether a layer's weights are to be drawn: they learn, and are its alone."""
    weight = layer.weight
    # What a parametrization makes of other weights is no Parameter.
    if not isinstance(weight, nn.Parameter) or weight.is_complex() or isinstance(layer, TRANSPOSED):
        return False
    return weight.requires_grad and id(weight) not in others


@torch.no_grad()
def draw(layer: Any, name: str, gain: float, chance: torch.Generator) -> None:
    """A layer's weights, and a bias of zero."""
    weights = torch.empty(layer.weight.shape, device="cpu", dtype=torch.float32)
    inputs = weights[0].numel()
    if name in FORWARD:
        deviation = gain / math.sqrt(inputs)
    else:
        # Those that an input has a part in: a group's, which torch's own xavier_normal_ does not see.
        outputs = weights.numel() / weights.shape[1] / getattr(layer, "groups", 1)
        deviation = gain * math.sqrt(2.0 / (inputs + outputs))
    weights.normal_(0.0, deviation, generator=chance)
    layer.weight.copy_(weights)
    if isinstance(layer.bias, nn.Parameter) and layer.bias.requires_grad:
        layer.bias.zero_()
