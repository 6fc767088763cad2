"""Ending a ``while`` that nothing follows in its block: its limit is lowered for one look at it.

As in ``while self.step < self.steps``, within a ``with``: no line is there to move the frame on to
(`outpace.plan.leave`), and the end of the ``with`` has to be gone through. The limit is the script's own
again as soon as the loop is over.

Only where the test compares two numbers with ``<``, ``<=``, ``>`` or ``>=``, and the one that is to be the
larger is not set in the loop: a variable of the frame or of its module, or an attribute that its owner, an
object or a class, has itself.
"""

from __future__ import annotations

import ast
from types import CodeType, FrameType
from typing import Any, NamedTuple

from outpace.measure.expressions import evaluate
from outpace.measure.syntax import stored_in
from outpace.plan.over_nothing import Trace, beyond


class Limit(NamedTuple):
    """Of a loop that can be ended so: the lines of its test, and what is compared in it."""

    head: range
    name: str
    owner: CodeType | None
    """whose attribute it is; None for a variable"""
    local: bool
    """it is a variable of the frame, not of its module"""
    counter: CodeType
    below: int
    """how far the limit has to be below the counter for the loop to be over"""


def limit_of(loop: ast.For | ast.While, frame: FrameType) -> Limit | None:
    """How a loop can be ended so; None where it cannot. Not to be asked by a trace function."""
    test = loop.test if isinstance(loop, ast.While) else None
    if not isinstance(test, ast.Compare) or len(test.ops) > 1:
        return None
    counter, limit, operator = test.left, test.comparators[0], test.ops[0]
    if isinstance(operator, ast.Gt | ast.GtE):
        counter, limit = limit, counter
    elif not isinstance(operator, ast.Lt | ast.LtE):
        return None
    stored = set[str]().union(*map(stored_in, loop.body))
    if not isinstance(limit, ast.Name | ast.Attribute) or ast.unparse(limit) in stored:
        return None
    owner = limit.value if isinstance(limit, ast.Attribute) else None
    name = limit.attr if isinstance(limit, ast.Attribute) else limit.id
    try:
        values = [evaluate(each, frame) for each in (counter, limit)]
        owned = owner is None or name in vars(evaluate(owner, frame))
    except Exception:
        return None
    if not owned or any(type(value) not in (int, float) for value in values):
        return None
    return Limit(
        range(loop.lineno, (test.end_lineno or loop.lineno) + 1),
        name,
        None if owner is None else _compiled(owner),
        name in frame.f_locals,
        _compiled(counter),
        int(isinstance(operator, ast.LtE | ast.GtE)),
    )


def _compiled(node: ast.expr) -> CodeType:
    return compile(ast.Expression(node), "<limit>", "eval")


def lower(limit: Limit, frame: FrameType, then: Trace | None) -> Trace:
    """Lower it; ``then`` traces what follows. ValueError where that cannot be.

    To be called, and what it returns set, by a trace function, at a line of the loop's head.
    """
    names = frame.f_globals, frame.f_locals
    try:
        owner = None if limit.owner is None else eval(limit.owner, *names)
        before = _names(limit, frame, owner)[limit.name]
        _set(limit, frame, owner, eval(limit.counter, *names) - limit.below)
    except Exception as error:
        raise ValueError("its limit is not what it was") from error

    def undo(frame: FrameType) -> None:
        _set(limit, frame, owner, before)

    return beyond(limit.head, undo, then)


def _names(limit: Limit, frame: FrameType, owner: Any) -> Any:
    """Where its value is; a function's variables are a new dict at each event."""
    if owner is not None:
        return vars(owner)
    return frame.f_locals if limit.local else frame.f_globals


def _set(limit: Limit, frame: FrameType, owner: Any, value: float) -> None:
    """Have it be another number."""
    if isinstance(owner, type):
        type.__setattr__(owner, limit.name, value)  # its own namespace cannot be written to
    else:
        _names(limit, frame, owner)[limit.name] = value
