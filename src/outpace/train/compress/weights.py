"""Magnitude pruning: the smallest weights of each layer become zero.

torch computes with a zero as with any other number and stores it as one: a call takes as long as before
and the file is as large. What shrinks is the file when it is compressed, as archives and downloads are.
Source: Han et al. 2015, arXiv 1506.02626.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from typing import Any

import torch
from torch import nn

from outpace.errors import UsageError
from outpace.train.compress import scan
from outpace.train.compress.judging import Judging
from outpace.train.compress.result import Made
from outpace.train.layers import KINDS

LEVELS = (0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
"""shares that are tried of a layer's weights"""


def prunable(model: nn.Module) -> dict[str, nn.Parameter]:
    """Weight matrices and filters of linear, convolutional and recurrent layers, by name; each once."""
    found: dict[str, nn.Parameter] = {}
    for prefix, layer in model.named_modules():
        if isinstance(layer, (*KINDS, nn.RNNBase)) and plain(layer):
            for name, weight in layer.named_parameters(prefix, recurse=False):
                if weight.dim() >= 2 and not any(weight is each for each in found.values()):
                    found[name] = weight
    return found


def plain(layer: Any) -> bool:
    """Whether a layer computes with its weights as they are. What `weight_norm` and the like make of others
    is no Parameter; among those others gains are no weights, and a row of zeros has no direction.
    """
    every = chain(*layer.all_weights) if isinstance(layer, nn.RNNBase) else [layer.weight]
    return all(isinstance(weight, nn.Parameter) for weight in every)


def mask(weight: torch.Tensor, share: float) -> torch.Tensor:
    """False at the share of a tensor's elements that are smallest in magnitude."""
    size = weight.detach().abs().flatten()
    kept = torch.ones(size.numel(), dtype=torch.bool, device=weight.device)
    kept[size.topk(round(share * size.numel()), largest=False).indices] = False
    return kept.view(weight.shape)


def prune(model: nn.Module, shares: Mapping[str, float]) -> None:
    """Set shares of a model's weights to zero, in place. Raises UsageError for names it has not."""
    weights = prunable(model)
    check(shares, weights)
    with torch.no_grad():
        for name, share in shares.items():
            weights[name].mul_(mask(weights[name], share))


def check(shares: Mapping[str, float], weights: Mapping[str, nn.Parameter]) -> None:
    """Raise UsageError where a share is of no weight, or no share."""
    for name, share in shares.items():
        if name not in weights:
            raise UsageError(
                f"there is no weight {name!r} to prune", f"there are: {', '.join(weights)}"
            )
        if not 0.0 <= share < 1.0:
            raise UsageError(f"{share:g} of {name} cannot be pruned", "a share is below 1")


def sparse(model: nn.Module, judging: Judging, allowed: float) -> list[Made]:
    """``model`` with as many zeros as the scan finds within what the metric is allowed to fall."""
    allowed = judging.scannable(allowed)
    weights = prunable(model)

    def fall(shares: Mapping[str, float]) -> float:
        with pruned(model, shares):
            return judging.fall(model)

    found = scan.curves(weights, LEVELS, fall, allowed)
    shares = scan.shares(found, fall, allowed)
    if not shares:
        raise UsageError(
            f"no layer's weights can be set to zero, not even {LEVELS[0]:.0%} of them, within "
            f"what the metric may fall, {allowed:.3g}"
        )
    prune(model, shares)
    with zeros_kept(model):
        judging.tuned(model)
    zeros = sum(int((weight == 0).sum()) for weight in weights.values())
    total = sum(weight.numel() for weight in weights.values())
    said = f"{zeros / total:.1%} of the weights of {len(weights)} layers are zero"
    return [Made(model, said, shares, found)]


@contextmanager
def pruned(model: nn.Module, shares: Mapping[str, float]) -> Iterator[None]:
    """Pruned inside, as it was outside."""
    weights = prunable(model)
    before = {name: weights[name].detach().clone() for name in shares}
    try:
        prune(model, shares)
        yield
    finally:
        with torch.no_grad():
            for name, values in before.items():
                weights[name].copy_(values)


@contextmanager
def zeros_kept(model: nn.Module) -> Iterator[None]:
    """A model that is trained inside has zeros where it had them, at each call and afterwards."""
    masks = [(weight, weight != 0) for weight in prunable(model).values()]

    def again(*_: Any) -> None:
        # Past autograd: a loss may call the model twice before its backward pass.
        for weight, kept in masks:
            weight.data.mul_(kept.to(weight.device))  # a Trainer may have moved the model

    handle = model.register_forward_pre_hook(again)
    try:
        yield
    finally:
        handle.remove()
        again()
