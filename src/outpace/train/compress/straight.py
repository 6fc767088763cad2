"""Layers that compute with their weights as int8 will hold them, and learn as if nothing was rounded.

For those of which `outpace.compress` stores the weights alone in int8: convolutions and embeddings. The
gradient of what was rounded is taken for that of the weights (Bengio et al. 2013, arXiv 1308.3432, the
straight-through estimator). The layers stay the same objects; their weights do too.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from outpace.train.compress.int8 import CONVOLVE, rounded


def through(weight: torch.Tensor) -> torch.Tensor:
    """The values that int8 has for weights; their gradient is that of the weights."""
    int8, scale = rounded(weight)
    return weight + (int8 * scale - weight).detach()


def convolved(layer: Any, x: torch.Tensor) -> torch.Tensor:
    """What a convolution that pads with zeros gives."""
    settings = (layer.stride, layer.padding, layer.dilation, layer.groups)
    return CONVOLVE[type(layer)](x, through(layer.weight), layer.bias, *settings)


def looked_up(layer: Any, x: torch.Tensor) -> torch.Tensor:
    """What an embedding gives."""
    found: torch.Tensor = F.embedding(
        x,
        through(layer.weight),
        layer.padding_idx,
        scale_grad_by_freq=layer.scale_grad_by_freq,
        sparse=layer.sparse,
    )
    return found


def round_weights(layer: nn.Module) -> None:
    """Have a layer compute so."""
    vars(layer)["forward"] = partial(looked_up if type(layer) is nn.Embedding else convolved, layer)


def as_they_are(layer: nn.Module) -> None:
    """Have a layer compute with its weights as they are again."""
    vars(layer).pop("forward", None)
