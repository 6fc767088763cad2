"""Which turns of a loop come to the line that runs, where the script says so by the loop's variable.

As with ``if fold in config.folds:`` around a training, or ``if fold != args.fold: continue`` before it. What
cannot be looked up without calling anything is taken to let all turns pass, as is what stands in functions
that the loop calls.
"""

from __future__ import annotations

import ast
import contextlib
import operator
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import Any

from outpace.measure.expressions import Unknown, evaluate, variable
from outpace.measure.syntax import has_line, names_in

MOST_ITEMS = 1000
"""that are gone through"""
PLAIN = (str, int, float, bool)
"""types of items, which no code of the user's compares: one that is equal need not be the same"""
COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda one, others: one in others,
    ast.NotIn: lambda one, others: one not in others,
}
Guard = tuple[ast.expr, bool]
"""a test, and what it gives where the line is come to"""


def reached(loop: ast.For, frame: FrameType, name: str, items: Sequence[Any]) -> Sequence[int]:
    """The numbers of the items with which a loop comes to the line that runs in its frame. ``name``: of the
    variable that is one of ``items``.
    """
    everything: Sequence[int] = range(len(items))
    if len(items) > MOST_ITEMS or not all(type(each) in PLAIN for each in items):
        return everything
    guards = [
        (test, wanted)
        for test, wanted in guards_of(loop, frame.f_lineno)
        if name in (named := names_in(test)) and not (named - {name}) & changed_in(loop)
    ]
    for test, wanted in guards:
        try:
            passes = [holds(test, frame, {name: items[number]}) is wanted for number in everything]
        except Exception:
            continue
        left = [number for number, each in zip(everything, passes, strict=True) if each]
        everything = left or everything  # the turn that runs does come here
    if is_last(loop, frame):
        with contextlib.suppress(Unknown):
            now = variable(frame, name)
            return [number for number in everything if items[number] == now and type(now) in PLAIN]
    return everything


def changed_in(loop: ast.For) -> set[str]:
    """Names that a loop's body gives another value, or whose methods it calls, as ``done.append(fold)``."""
    found: set[str] = set()
    for node in (part for statement in loop.body for part in ast.walk(statement)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            found |= names_in(node.func.value)
        elif isinstance(getattr(node, "ctx", None), ast.Store | ast.Del):
            found |= names_in(node)
    return found


def is_last(loop: ast.For, frame: FrameType) -> bool:
    """Whether a setting of the script's ends the loop with this turn: ``if config.one_fold: break`` after the
    line that runs. A variable in such a test may change until then.
    """
    here = next(
        (n for n, each in enumerate(loop.body) if has_line(each, frame.f_lineno)), len(loop.body)
    )
    for each in loop.body[here + 1 :]:
        if isinstance(each, ast.If) and isinstance(each.body[-1], ast.Break):
            names = [
                n
                for n in ast.walk(each.test)
                if isinstance(n, ast.Name) and not _owns(each.test, n)
            ]
            try:
                if all(one.id.isupper() for one in names) and holds(each.test, frame, {}):
                    return True
            except Exception:
                continue
    return False


def _owns(test: ast.expr, name: ast.Name) -> bool:
    """Whether an attribute of it is asked for."""
    return any(isinstance(each, ast.Attribute) and each.value is name for each in ast.walk(test))


def guards_of(loop: ast.For, line: int) -> Iterator[Guard]:
    """The tests that decide whether a turn of a loop comes to a line of its own body."""
    block: list[ast.stmt] = loop.body
    while True:
        here = next((each for each in block if has_line(each, line)), None)
        if here is None:
            return
        for before in block[: block.index(here)]:
            if isinstance(before, ast.If) and not before.orelse and _goes_on(before.body[-1]):
                yield before.test, False
        if not isinstance(here, ast.If | ast.With | ast.Try):
            return
        if isinstance(here, ast.If):
            within = any(has_line(each, line) for each in here.body)
            if within and not here.orelse:  # else what comes otherwise may train too
                yield here.test, True
            if not within:
                return
            block = here.body
        else:
            block = here.body


def _goes_on(statement: ast.stmt) -> bool:
    """Whether the rest of a turn is left out."""
    return isinstance(statement, ast.Continue | ast.Break)


def holds(test: ast.expr, frame: FrameType, given: dict[str, Any]) -> bool:
    """Whether a test of plain values is true, with some variables as they are ``given``. Raises Unknown where
    only running it would tell.
    """
    if isinstance(test, ast.BoolOp):
        parts = [holds(each, frame, given) for each in test.values]
        return all(parts) if isinstance(test.op, ast.And) else any(parts)
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return not holds(test.operand, frame, given)
    if isinstance(test, ast.Compare):
        values = [_value(each, frame, given) for each in (test.left, *test.comparators)]
        pairs = zip(test.ops, values, values[1:], strict=False)
        return all(COMPARISONS[type(op)](one, other) for op, one, other in pairs)
    value = _value(test, frame, given)
    if type(value) in (*PLAIN, type(None)):
        return bool(value)
    raise Unknown


def _value(node: ast.expr, frame: FrameType, given: dict[str, Any]) -> Any:
    """Of a name that is given, of a list that is written there, or of what can be looked up."""
    if isinstance(node, ast.Name) and node.id in given:
        return given[node.id]
    if isinstance(node, ast.List | ast.Tuple | ast.Set):
        return [_value(each, frame, given) for each in node.elts]
    value = evaluate(node, frame)
    plain = type(value) in (*PLAIN, type(None), range)
    if plain or (type(value) in (list, tuple, set) and all(type(each) in PLAIN for each in value)):
        return value
    raise Unknown
