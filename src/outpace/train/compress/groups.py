"""Which channels of a model are removed together: who makes them, who carries them, who reads them.

A channel is a filter's output or a neuron's. It can be removed where what it passes on its way treats
each channel by itself. Layers whose outputs are added make the same channels and lose them together.

Limits: what is not known to keep channels apart (LayerNorm, softmax, attention, recurrent layers,
reshapes to numbers that are written down) keeps all that come to it, as do layers that are called twice,
have hooks or share weights, and the model's output.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from torch import nn

from outpace.train.compress.graph import traced
from outpace.train.compress.layouts import Slot
from outpace.train.compress.rules import Walk


class Group(NamedTuple):
    """Channels that can be removed. ``makers``: layers whose outputs they are; ``carriers``: norms and
    depthwise convolutions that they pass; ``readers``: layers that mix them.
    """

    name: str
    size: int
    makers: tuple[str, ...]
    carriers: tuple[Slot, ...]
    readers: tuple[Slot, ...]


def groups(model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Group]:
    """The channels of a model in eval mode that can be removed; ``args``, ``kwargs``: a call of it.

    Raises UsageError where it cannot be traced.
    """
    return [
        Group("+".join(c.makers), c.size, tuple(c.makers), tuple(c.carriers), tuple(c.readers))
        for c in Walk(model, *traced(model, args, kwargs)).made
        if c.into is None and c.kept is None and c.size > 1 and c.readers
    ]
