"""What the script's own lines compute beside the model's call, backward and the optimizer's step.

Parameters that are changed tensor by tensor, and by no optimizer; and the loss: what is made of the
model's output while gradients are recorded. Lines that the step looked at did not come to stay unknown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from types import FrameType
from typing import Any, NamedTuple

import torch

from outpace.measure.dispatch import storage_of, tensors_in

Function = tuple[str, str]
"""file and name"""
Place = tuple[str, str, int]
"""file, function, line"""
READS = ("detach", "alias", "_local_scalar_dense", "_to_copy", "clone", "copy_")
"""operators that only hand a tensor on, to a metric as often as to a loss"""


class Update(NamedTuple):
    """The lines of a function between its first and its last operator, in one step."""

    file: str
    function: str
    first: int
    last: int
    busiest: int
    """the line that runs most of the operators"""
    operators: int

    def holds(self, file: str, function: str, line: int) -> bool:
        """Whether a line is one of them."""
        return (file, function) == self[:2] and self.first <= line <= self.last


class OwnOperators:
    """Sees the operators of one step that run outside of forward, backward and optimizer."""

    def __init__(self, parameters: Iterable[torch.nn.Parameter]) -> None:
        storages = (storage_of(parameter) for parameter in parameters)
        self.parameters = {s.data_ptr() for s in storages if s is not None}
        self.operators: dict[Function, Counter[int]] = {}
        """how many at each line"""
        self.changes: Counter[Function] = Counter()
        """how many of them change a parameter"""
        self.losses: set[Place] = set()
        """lines that make a loss of what the model gave"""

    def see(self, operator: Any, args: tuple[Any, ...], out: Any, frame: FrameType | None) -> None:
        """Note the user's frame that called an operator, and what it works on."""
        if frame is None:
            return
        if torch.is_grad_enabled() and _is_recorded(operator, args, out):
            self.losses.add((frame.f_code.co_filename, frame.f_code.co_name, frame.f_lineno))
        function = frame.f_code.co_filename, frame.f_code.co_name
        self.operators.setdefault(function, Counter())[frame.f_lineno] += 1
        first = args[0] if args else None
        if operator._schema.is_mutable and isinstance(first, torch.Tensor):
            storage = storage_of(first)
            self.changes[function] += storage is not None and storage.data_ptr() in self.parameters

    def update(self) -> Update | None:
        """The function that changed most parameters; None where there is none."""
        ((function, changes),) = self.changes.most_common(1) or [(("", ""), 0)]
        if not changes:
            return None
        lines = self.operators[function]
        busiest = max(lines, key=lambda line: lines[line])
        return Update(*function, min(lines), max(lines), busiest, lines.total())


def _is_recorded(operator: Any, args: tuple[Any, ...], out: Any) -> bool:
    """Whether backward may go through an operator that has just run."""
    return (
        operator._schema.name.partition("::")[2] not in READS
        and any(made.is_floating_point() for made in tensors_in(out))
        and any(given.requires_grad for given in tensors_in(args))
    )
