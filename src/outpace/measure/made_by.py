"""Which functions made a tensor's numbers, as its graph tells: nothing has to be held to know that.

What is in no graph, as it learns nothing, tells nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

MOST = 100
"""functions that are looked at: a graph may be as long as a simulation"""


def made_by(given: torch.Tensor, through: Callable[[Any], bool]) -> list[Any]:
    """The nearest functions, beyond those that are looked ``through``."""
    waiting, seen = [given.grad_fn], set[Any]()
    found = []
    while waiting and len(seen) < MOST:
        one = waiting.pop()
        if one is None or one in seen:
            continue
        seen.add(one)
        if through(one):
            waiting += learnt_through(one)
        else:
            found.append(one)
    return found


def learnt_through(function: Any) -> list[Any]:
    """The functions that a function's gradients go on to."""
    return [each for each, _ in function.next_functions if each is not None]


def kind(function: Any) -> str:
    """As ``Sigmoid`` of ``SigmoidBackward0``."""
    return str(function.name()).partition("Backward")[0]
