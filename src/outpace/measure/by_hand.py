"""A model's parameters changed by the script's own lines, tensor by tensor, and by no optimizer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from types import FrameType
from typing import Any, NamedTuple

import torch

from outpace.measure.dispatch import storage_of

Function = tuple[str, str]
"""file and name"""


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

    def see(self, operator: Any, args: tuple[Any, ...], frame: FrameType | None) -> None:
        """Note the user's frame that called an operator, and whether it wrote to a parameter."""
        if frame is None:
            return
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
