"""How long the whole run will be, read off the loops around the step.

``for epoch in range(args.epochs)`` is evaluated in its own frame, without calling anything; what
cannot be evaluated so is unknown.
"""

from __future__ import annotations

import ast
import functools
import math
import sys
from types import FrameType
from typing import Any

from outpace.seams.where import is_user_file

WRAPPERS = ("tqdm", "trange", "track", "enumerate", "reversed", "progress_bar")


class Unknown(Exception):
    """An expression that only running it would tell."""


@functools.lru_cache(maxsize=64)
def parse(filename: str) -> ast.Module | None:
    """The syntax tree of a file; None where it cannot be read."""
    try:
        with open(filename, encoding="utf-8") as file:
            return ast.parse(file.read())
    except (OSError, SyntaxError, ValueError):
        return None


def loops_around(frame: FrameType) -> list[ast.For]:
    """The for loops of this frame's own function that its running line is inside of."""
    tree = parse(frame.f_code.co_filename)
    if tree is None:
        return []
    line, first = frame.f_lineno, frame.f_code.co_firstlineno
    whole = frame.f_code.co_name == "<module>"
    loops = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.For)
        and node.lineno <= line <= (node.end_lineno or line)
        and (whole or node.lineno >= first)
    ]
    return sorted(loops, key=lambda loop: loop.lineno)


def evaluate(node: ast.expr, frame: FrameType) -> Any:
    """A plain expression's value; Unknown for anything that calls or changes something."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        for scope in (frame.f_locals, frame.f_globals):
            if node.id in scope:
                return scope[node.id]
    elif isinstance(node, ast.Attribute):
        return getattr(evaluate(node.value, frame), node.attr)
    elif isinstance(node, ast.Subscript):
        return evaluate(node.value, frame)[evaluate(node.slice, frame)]
    elif isinstance(node, ast.BinOp):
        left, right = evaluate(node.left, frame), evaluate(node.right, frame)
        operations = {ast.Add: "__add__", ast.Sub: "__sub__", ast.Mult: "__mul__",
                      ast.FloorDiv: "__floordiv__"}  # fmt: skip
        name = operations.get(type(node.op))
        if name is not None and isinstance(left, int) and isinstance(right, int):
            return getattr(left, name)(right)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "len":
        return len(evaluate(node.args[0], frame))
    raise Unknown


def turns(loop: ast.For, frame: FrameType) -> int | None:
    """How often a loop over a range turns; None for loops over anything else."""
    call: ast.expr = loop.iter
    while isinstance(call, ast.Call) and call.args and _name(call.func) in WRAPPERS:
        if _name(call.func) == "trange":
            break
        call = call.args[0]
    if not isinstance(call, ast.Call) or _name(call.func) not in ("range", "trange"):
        return None
    try:
        return len(range(*(int(evaluate(a, frame)) for a in call.args)))
    except Exception:
        return None


def _name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else getattr(node, "attr", "")


def loops_around_step() -> list[int | None]:
    """Turns of each for loop around the calling step, the innermost first; None: not over a range."""
    frame: FrameType | None = sys._getframe(1)
    found: list[int | None] = []
    while frame is not None:
        if is_user_file(frame.f_code.co_filename):
            found += [turns(loop, frame) for loop in reversed(loops_around(frame))]
        frame = frame.f_back
    return found


def total_steps(loops: list[int | None], batches: int | None, micro_steps: int) -> int | None:
    """Steps of the whole run from the loops around a step and the batches of an epoch."""
    known = math.prod(n for n in loops if n is not None)
    if None not in loops:
        return known if loops else None
    if batches is None or loops.count(None) > 1:
        return None
    return max(1, batches // max(1, micro_steps)) * known
