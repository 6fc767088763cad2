"""The loss of each target, where the user's loss can tell it: those of torch can."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from outpace.errors import UsageError
from outpace.train.objective import takes_model

Each = Callable[[Any, Any], torch.Tensor]
"""outputs and targets -> the loss of each target"""
LOGARITHMS = {
    "cross_entropy",
    "nll_loss",
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
}
"""of torch.nn.functional; by their names, as whoever watches them puts others in their place"""
MODULES = (nn.CrossEntropyLoss, nn.NLLLoss, nn.BCELoss, nn.BCEWithLogitsLoss)
WEIGHTING: dict[str, Any] = {"weight": None, "pos_weight": None, "label_smoothing": 0.0}
"""by which a loss is no longer -ln p, and what leaves it out"""


def unreduced(loss: Any, asking: str) -> Each:
    """The loss without its mean, for the strategy ``asking``.

    Raises UsageError where it is not a mean that ``reduction="none"`` leaves out.
    """
    if isinstance(loss, nn.Module):
        if getattr(loss, "reduction", None) == "mean":
            each: Any = copy.copy(loss)
            each.reduction = "none"
            return each  # type: ignore[no-any-return]
    elif not takes_model(loss) and _reduction(loss) == "mean":
        return partial(loss, reduction="none")
    raise UsageError(
        f"{asking} needs the loss of each target, and {loss!r} tells their mean alone",
        "give a loss of torch, such as F.cross_entropy, or one that takes reduction='none'",
    )


def logarithm(loss: Any) -> bool:
    """Whether it is known to be -ln p, p the probability that a target is told with."""
    function = getattr(loss, "func", loss)  # of a partial
    known = getattr(function, "__name__", None) in LOGARITHMS
    return isinstance(loss, MODULES) or (known and function.__module__ == F.__name__)


def unweighted(loss: Any) -> Any:
    """A loss that is -ln p but for weights of targets and label smoothing, without them; else itself."""
    held = (
        loss.keywords if isinstance(loss, partial) else {n: getattr(loss, n, 0) for n in WEIGHTING}
    )
    weighting = [name for name in WEIGHTING if is_set(held.get(name))]
    if not weighting:
        return loss
    if isinstance(loss, partial):
        return partial(loss, **{name: WEIGHTING[name] for name in weighting})
    plain = copy.deepcopy(loss)
    for name in weighting:
        setattr(plain, name, WEIGHTING[name])
    return plain


def is_set(value: Any) -> bool:
    """Whether it weights or smooths anything."""
    return isinstance(value, torch.Tensor) or bool(value)


def _reduction(loss: Callable[..., Any]) -> Any:
    """The reduction that a function makes unless it is told otherwise."""
    try:
        parameter = inspect.signature(loss).parameters.get("reduction")
    except (TypeError, ValueError):
        return None
    return parameter.default if parameter is not None else None
