"""A plain expression's value in a frame, without running any code of the user's."""

from __future__ import annotations

import ast
import functools
import inspect
import math
import operator
import weakref
from types import FrameType
from typing import Any

import numpy as np
import torch

from outpace.measure.syntax import name_of
from outpace.seams.where import is_user_file, locals_of

COMPUTED = (property, functools.cached_property)
DATA_LOADER = "torch.utils.data.dataloader"
SAMPLERS = "torch.utils.data.sampler"
"""which ask others for their length"""
LIBRARIES = ("builtins", "collections", "numpy", "torch")
ARRAYS = (torch.Tensor, torch.nn.Parameter, np.ndarray, np.memmap)
NUMBERS = (int, float)
OPERATIONS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
}
MOST_BASE, MOST_EXPONENT = 1000, 64
ROUNDED = ("ceil", "floor")


class Unknown(Exception):
    """An expression that only running it would tell."""


def _power(base: float, exponent: float) -> float:
    """As in ``range(10**6)``; what would take long to compute is none of a script's lengths."""
    if abs(base) > MOST_BASE or not 0 <= exponent <= MOST_EXPONENT:
        raise Unknown
    found: float = base**exponent
    return found


def evaluate(node: ast.expr, frame: FrameType) -> Any:
    """A plain expression's value; Unknown for anything that calls or changes something."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        return variable(frame, node.id)
    elif isinstance(node, ast.Attribute):
        return _attribute(evaluate(node.value, frame), node.attr)
    elif isinstance(node, ast.Subscript):
        items = evaluate(node.value, frame)
        if type(items) in (list, tuple, dict) or _is_mapping(items, "__getitem__"):
            return items[_between(node.slice, frame)]
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = evaluate(node.operand, frame)
        if isinstance(value, NUMBERS):
            return -value
    elif isinstance(node, ast.BinOp):
        left, right = evaluate(node.left, frame), evaluate(node.right, frame)
        operation = _power if isinstance(node.op, ast.Pow) else OPERATIONS.get(type(node.op))
        if operation is not None and isinstance(left, NUMBERS) and isinstance(right, NUMBERS):
            return operation(left, right)
    elif isinstance(node, ast.Call) and not node.keywords:
        return _called(node.func, node.args, frame)
    raise Unknown


def _attribute(owner: Any, name: str) -> Any:
    """One that is there, or of an array, or that settings of a library's look up; no property."""
    if type(owner) in ARRAYS and name == "shape":
        return tuple(owner.shape)
    try:
        computed = isinstance(inspect.getattr_static(owner, name), COMPUTED)
    except AttributeError:
        computed = not _is_mapping(owner, "__getattr__")
    if computed:
        raise Unknown
    return getattr(owner, name)


def _is_mapping(owner: Any, method: str) -> bool:
    """Whether that has keys, which no code of the user's looks up."""
    looks_up = getattr(type(owner), method, None)
    code = getattr(looks_up, "__code__", None)
    return (
        hasattr(type(owner), "keys")
        and looks_up is not None
        and not (code is not None and is_user_file(code.co_filename))
    )


def _called(function: ast.expr, given: list[ast.expr], frame: FrameType) -> Any:
    """What counts, rounds or compares numbers; of any other call not even what it is given is looked at."""
    name = name_of(function)
    if isinstance(function, ast.Attribute):
        owner = evaluate(function.value, frame)
        if owner is math and name in ROUNDED and len(given) == 1:
            return getattr(math, name)(_number(given[0], frame))
        if type(owner) in (torch.Tensor, torch.nn.Parameter) and name in ("size", "numel"):
            return getattr(owner, name)(*(evaluate(each, frame) for each in given))
        raise Unknown
    if name in ROUNDED and len(given) == 1 and variable(frame, name) is getattr(math, name):
        return getattr(math, name)(_number(given[0], frame))
    if _is_named(frame, name):
        raise Unknown
    if name == "len" and len(given) == 1:
        return length_of(evaluate(given[0], frame))
    if name == "int" and len(given) == 1:
        value = evaluate(given[0], frame)
        if isinstance(value, (int, float, str)):
            return int(value)
    if name in ("min", "max") and len(given) > 1:
        return (min if name == "min" else max)(*(_number(each, frame) for each in given))
    raise Unknown


def _is_named(frame: FrameType, name: str) -> bool:
    """Whether the script means something of its own by the name of a builtin."""
    try:
        variable(frame, name)
    except Unknown:
        return False
    return True


def _number(node: ast.expr, frame: FrameType) -> Any:
    value = evaluate(node, frame)
    if not isinstance(value, NUMBERS):
        raise Unknown
    return value


def _between(node: ast.expr, frame: FrameType) -> Any:
    """An index, or the limits of a slice."""
    if not isinstance(node, ast.Slice):
        return evaluate(node, frame)
    parts = (node.lower, node.upper, node.step)
    return slice(*(None if part is None else evaluate(part, frame) for part in parts))


def variable(frame: FrameType, name: str) -> Any:
    """The value that a name has in a frame; Unknown where it has none, or cannot be asked for."""
    names = locals_of(frame)
    if names is None:
        raise Unknown
    for scope in (names, frame.f_globals):
        if name in scope:
            return scope[name]
    raise Unknown


_asked: weakref.WeakKeyDictionary[Any, tuple[int | None, int]] = weakref.WeakKeyDictionary()
"""samples of DataLoaders' data sets, which may grow, and batches of their epochs then"""


def length_of(value: Any) -> int:
    """How many items a library's container has; Unknown where code of the user's may have to tell."""
    module = type(value).__module__
    if module == DATA_LOADER:
        return _batches_of(value)
    if module.split(".")[0] not in LIBRARIES or module == SAMPLERS:
        raise Unknown
    return len(value)


def _batches_of(loader: Any) -> int:
    """Those of a DataLoader's epoch, as a copy of it tells: its samplers may draw to count them.

    Unknown where its data set, of which there is no copy, does more in code of the user's than count.
    """
    from outpace.seams.apart import apart, held_by, only_counts
    from outpace.seams.generators import generators_kept

    kind: Any = type(loader.dataset)
    if not only_counts(kind) and is_user_file(kind.__len__.__code__.co_filename):
        raise Unknown
    samples = len(loader.dataset) if hasattr(kind, "__len__") else None
    known, found = _asked.get(loader, (None, None))
    if found is None or known != samples:  # it may be asked with each step
        with generators_kept(*held_by(loader)):
            found = len(apart(loader))
        _asked[loader] = samples, found
    return found
