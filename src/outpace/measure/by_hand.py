"""What the script's own lines compute in a step: a loss, and parameters that they change themselves.

Operators outside of the model's call, backward and the optimizer are laid at the line that calls them.
Those that gradients go through, or that make some (`torch.autograd.grad`), are part of the forward
pass; the others are left to tell whether parameters are changed tensor by tensor, by no optimizer.

What changes them is the outermost block around those lines that computes nothing else: a function, a loop or
a ``with``; in the loop of the training, where all else is too, the lines alone.
"""

from __future__ import annotations

import ast
import os
import sys
from collections import Counter
from collections.abc import Iterable
from types import FrameType
from typing import Any, NamedTuple

import torch

from outpace.measure.dispatch import name_of, phase, storage_of, tensors_in
from outpace.measure.syntax import parse
from outpace.seams.where import is_user_file, user_frames

Function = tuple[str, str]
"""file and name"""
Place = tuple[str, str, int]
"""file, function and line"""
READS = ("detach", "alias", "_local_scalar_dense", "_to_copy", "clone", "copy_")
"""operators that gradients do not go through, or that hand a tensor on to a metric as often as to a loss"""
VIEWS = ("set_", "as_strided_", "detach_", "resize_")
"""operators that change what a tensor is of a memory, not what is in it: a copy of a model is read so"""

BLOCKS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.For, ast.While, ast.With, ast.AsyncWith)
TORCHS = f"{os.sep}torch{os.sep}optim{os.sep}"


class Update(NamedTuple):
    """The lines of a function between the first and the last operator of a block of it, in one step."""

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
        self.changes: dict[Function, Counter[int]] = {}
        """how many of them change a parameter"""
        self.computing: set[Place] = set()
        """lines from which forward passes and losses are computed, callers' too"""
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
            if storage is not None and storage.data_ptr() in self.parameters:
                self.changes.setdefault(function, Counter())[frame.f_lineno] += 1
        learnt = is_learnt_through(operator, args, out)
        if learnt:
            self.compute(frame)
            self.learnt[*function, frame.f_lineno] += 1
        return learnt

    def compute(self, frame: FrameType) -> None:
        """Note where an operator of a forward pass, or of a loss, was called from."""
        for each in user_frames(frame):
            self.computing.add((each.f_code.co_filename, each.f_code.co_name, each.f_lineno))

    def update(self) -> Update | None:
        """Where most parameters were changed; None where none was."""
        if not self.changes:
            return None
        function = max(self.changes, key=lambda each: self.changes[each].total())
        within = self.block(*function)
        lines = {line: n for line, n in self.operators[function].items() if line in within}
        busiest = max(lines, key=lambda line: lines[line])
        return Update(*function, min(lines), max(lines), busiest, sum(lines.values()))

    def block(self, file: str, function: str) -> range:
        """The lines of the outermost block around all changes of a function that computes nothing else."""
        changes = self.changes[file, function]
        first, last = min(changes), max(changes)
        computing = {line for path, _, line in self.computing if path == file}
        tree = parse(file)
        for node in ast.walk(tree) if tree is not None else ():  # the outer ones first
            if not isinstance(node, BLOCKS) or not node.lineno <= first <= last <= _end(node):
                continue
            lines = range(node.lineno, _end(node) + 1)
            if computing.isdisjoint(lines) and not any(map(_goes_backward, ast.walk(node))):
                return lines
        return range(first, last + 1)


def _end(node: ast.stmt) -> int:
    return node.end_lineno or node.lineno


def _goes_backward(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "backward"


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
