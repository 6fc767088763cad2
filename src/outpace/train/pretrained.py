"""Whether a model's weights were trained before, as its norms tell.

A norm begins with one scale for all channels, and training moves each of them. Scales alone may be drawn
at random, as DCGAN has it: where there are shifts, these have to differ too. Not told: a model without
norms, and one whose norms do not learn, as those of a backbone that is frozen below a new head.
"""

from __future__ import annotations

import torch

from outpace.train.optimizers import NORMS

GLANCES = 10
"""batches that a norm may have seen without any training, as where shapes were looked at"""


def pretrained(model: torch.nn.Module) -> bool:
    """Whether any norm has learnt, or followed the statistics of a training."""
    return any(has_learnt(each) for each in model.modules() if is_norm(each))


def is_norm(layer: torch.nn.Module) -> bool:
    """By its class: also those that are not torch's, such as LlamaRMSNorm."""
    return "norm" in type(layer).__name__.lower()


def has_learnt(norm: torch.nn.Module) -> bool:
    """By its scales and shifts, or by the batches that it has seen."""
    scale, shift = norm._parameters.get("weight"), norm._parameters.get("bias")
    seen = norm._buffers.get("num_batches_tracked")
    followed = seen is not None and int(seen) > GLANCES
    if scale is None:
        return followed
    if not scale.requires_grad or (scale.dim() > 1 and not isinstance(norm, NORMS)):
        return False
    return followed or (differ(scale) and (shift is None or differ(shift)))


def differ(values: torch.Tensor) -> bool:
    """Whether they are not all the same; of a shard those that are here."""
    own = getattr(values, "to_local", lambda: values)().detach().flatten()
    return own.numel() > 1 and bool((own != own[0]).any())
