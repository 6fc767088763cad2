"""Whether a script goes on where a backward pass fails: as a guard, say, against a NaN that torch's anomaly
detection finds.

It is read in the user's modules: a ``try`` whose body calls ``backward`` or ``grad``, or a function of that
name which leads to it, and which takes the error without raising it again, be it in some cases alone.
"""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Iterator

from outpace.measure.syntax import leaves, name_of
from outpace.measure.user_modules import user_modules

CAUGHT = {"RuntimeError", "Exception", "BaseException"}
"""what takes the error of a backward pass"""
PLAIN = (ast.Expr, ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Delete, ast.Import, ast.ImportFrom)
"""what goes on to the next line"""


def backward_tried() -> bool:
    """Whether the user's modules catch what a backward pass raises, and go on."""
    nodes = [node for tree in _trees() for node in ast.walk(tree)]
    functions = [each for each in nodes if isinstance(each, ast.FunctionDef)]
    leading = {"backward", "grad"}
    while more := {f.name for f in functions if leading & _called_in(f.body)} - leading:
        leading |= more
    return any(leading & _called_in(body) for body in map(_guarded, nodes))


def _trees() -> Iterator[ast.Module]:
    for lines in user_modules():
        with contextlib.suppress(SyntaxError, ValueError, RecursionError):  # as of an extension
            yield ast.parse("".join(lines))


def _guarded(node: ast.AST) -> list[ast.stmt]:
    """What is run there whose errors are taken, if any are."""
    match node:
        case ast.Try() | ast.TryStar() if leaves(node.finalbody):
            return [*node.body, *node.orelse]
        case ast.Try() | ast.TryStar() if any(map(_goes_on, node.handlers)):
            return node.body
        case ast.With(body=body, items=items) if any(_suppresses(each) for each in items):
            return body
    return []


def _goes_on(handler: ast.ExceptHandler) -> bool:
    takes = handler.type is None or bool(CAUGHT & _names(handler.type))
    *before, last = handler.body
    raises = isinstance(last, ast.Raise) and all(isinstance(each, PLAIN) for each in before)
    return takes and not raises


def _suppresses(item: ast.withitem) -> bool:
    named = _names(item.context_expr)
    return "suppress" in named and bool(CAUGHT & named)


def _called_in(body: list[ast.stmt]) -> set[str]:
    calls = (each for line in body for each in ast.walk(line) if isinstance(each, ast.Call))
    return {name_of(call.func) for call in calls}


def _names(tree: ast.expr) -> set[str]:
    return {name_of(each) for each in ast.walk(tree)}
