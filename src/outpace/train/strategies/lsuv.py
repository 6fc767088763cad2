"""lsuv: first weights with which each layer's outputs have a variance of one."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, final

import torch
from torch import nn

from outpace.seams.generators import generators_kept
from outpace.train import ranks
from outpace.train.layers import look_at, shared
from outpace.train.strategies.base import Strategy

if TYPE_CHECKING:
    from outpace.train.run import Run


@final
class Lsuv(Strategy):
    """Layer by layer, weights become orthonormal and are scaled until outputs have a variance of one.

    What: in one forward pass of a first batch each linear and convolutional layer, as it is called, is
    given orthonormal weights, divided by the deviation of what it then makes of its input, its bias
    left out (the paper scales in rounds, bias included). Generators, data and BatchNorm's statistics
    are left as they were.
    Helps: deep nets without normalisation, and activations for which no gain is known: with torch's
    own initialisation signals vanish or explode there.
    Harms: weights that were made or loaded with care are lost; a layer that is to begin at zero (the
    last one of a residual branch) no longer does. Where a norm follows each layer it changes little.
    Weights that several modules share stay as they are.
    Source: Mishkin and Matas 2016, arXiv 1511.06422, algorithm 1; Saxe et al. 2014, arXiv 1312.6120
    (orthonormal weights).
    """

    name = "lsuv"
    sets = ("the first weights",)

    def first_weights(self, run: Run) -> None:
        """Make them."""
        chance = torch.Generator().manual_seed(drawn_seed(run))
        seen: set[nn.Module] = set()
        others = shared(run.module)

        def scale(
            name: str, layer: nn.Module, given: tuple[Any, ...], output: torch.Tensor
        ) -> torch.Tensor | None:
            weight = layer.weight
            # What a parametrization makes of other weights is no Parameter.
            if not (isinstance(weight, nn.Parameter) and weight.requires_grad and given):
                return None
            if layer in seen or id(weight) in others or weight.is_complex():
                return None
            seen.add(layer)
            fresh = torch.empty(weight.shape, device="cpu", dtype=torch.float32)
            weight.copy_(nn.init.orthogonal_(fresh, generator=chance))
            plain = without_bias(called(layer, given), layer.bias, weight.dim())
            variance = float(plain.float().var(correction=0))
            if run.world > 1:
                variance = ranks.summed([variance], run.device)[0] / run.world
            if 0.0 < variance < math.inf:
                weight.div_(math.sqrt(variance))
            return called(layer, given)

        batch = run.train.peek(1)[0]
        look_at(run.module, run.objective, batch, scale)
        run.note(f"lsuv: the outputs of {len(seen)} layers begin with a variance of 1")


def drawn_seed(run: Run) -> int:
    """From torch's generator, which stays where it is; the same on all ranks."""
    with generators_kept():
        seed = int(torch.randint(2**31, (), device="cpu"))
    return int(ranks.summed([seed], run.device)[0]) if run.world > 1 else seed


def called(layer: Any, given: tuple[Any, ...]) -> torch.Tensor:
    """What a layer makes of its input, with weights that were changed just now."""
    torch.clear_autocast_cache()  # autocast keeps casts of them as they were
    made: torch.Tensor = layer.forward(*given)
    return made


def without_bias(output: torch.Tensor, bias: Any, dimensions: int) -> torch.Tensor:
    """What weights of so many dimensions made: a bias is along the channels."""
    return output if bias is None else output - bias.view(-1, *[1] * (dimensions - 2))
