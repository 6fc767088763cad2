"""What the script's own lines compute in a step: a loss, and parameters that they change themselves.

Operators outside of the model's call, backward and the optimizer are laid at the line that calls them.
Those that gradients go through, or that make some (`torch.autograd.grad`), are part of the forward
pass; the others are left to tell whether parameters are changed tensor by tensor, by no optimizer.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterable
from types import FrameType
from typing import Any, NamedTuple

import torch

from outpace.measure.dispatch import name_of, phase, storage_of, tensors_in
from outpace.seams.where import is_user_file

Function = tuple[str, str]
"""file and name"""
Place = tuple[str, str, int]
"""file, function and line"""
READS = ("detach", "alias", "_local_scalar_dense", "_to_copy", "clone", "copy_")
"""operators that gradients do not go through, or that hand a tensor on to a metric as often as to a loss"""
VIEWS = ("set_", "as_strided_", "detach_", "resize_")
"""operators that change what a tensor is of a memory, not what is in it: a copy of a model is read so"""

TORCHS = f"{os.sep}torch{os.sep}optim{os.sep}"


class Update(NamedTuple):
    """The lines of a function between its first and its last operator, in one step."""

    file: str
    function: str
    first: int
    last: int
    busiest: int
    """the line that runs most of the operators"""
    operators: int
    in_step: bool = False
    """in the step of an optimizer that the script wrote"""

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
        self.learnt: Counter[Place] = Counter()
        """by file, function and line: how many that gradients go through, as those of a loss"""

    def see(self, operator: Any, args: tuple[Any, ...], out: Any, frame: FrameType) -> bool:
        """Note who called an operator, and whether it wrote to a parameter; True for one of a loss."""
        function = frame.f_code.co_filename, frame.f_code.co_name
        self.operators.setdefault(function, Counter())[frame.f_lineno] += 1
        first = args[0] if args else None
        writes = operator._schema.is_mutable and name_of(operator) not in VIEWS
        if writes and isinstance(first, torch.Tensor):
            storage = storage_of(first)
            self.changes[function] += storage is not None and storage.data_ptr() in self.parameters
        learnt = is_learnt_through(operator, args, out)
        if learnt:
            self.learnt[*function, frame.f_lineno] += 1
        return learnt

    def update(self) -> Update | None:
        """The function that changed most parameters; None where there is none."""
        ((function, changes),) = self.changes.most_common(1) or [(("", ""), 0)]
        if not changes:
            return None
        lines = self.operators[function]
        busiest = max(lines, key=lambda line: lines[line])
        return Update(*function, min(lines), max(lines), busiest, lines.total())


def is_scripts_own(optimizer: object) -> bool:
    """Whether the script wrote an optimizer's class, or one between it and torch's."""
    module = sys.modules.get(type(optimizer).__module__)
    return is_user_file(getattr(module, "__file__", None) or "")


def through_torchs(frame: FrameType | None, user: FrameType) -> bool:
    """Whether an optimizer of torch's was called by the user's frame, as by ``super().step()``."""
    while frame is not None and frame is not user:
        if TORCHS in frame.f_code.co_filename:
            return True
        frame = frame.f_back
    return False


def is_learnt_through(operator: Any, args: tuple[Any, ...], out: Any) -> bool:
    """Whether an operator makes a gradient, or gradients will go through what it made."""
    if phase() != "forward":
        return phase() == "backward"
    name = name_of(operator)
    if name in READS or not any(t.is_floating_point() or t.is_complex() for t in tensors_in(out)):
        return False
    return any(tensor.requires_grad for tensor in tensors_in(args))
