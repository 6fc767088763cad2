"""How many steps a training has where its loops are left by a count: ``if step >= most: break``.

Also told is ``while step < most``. Both sides are evaluated where the step is called, without calling
anything, and what is missing between them is seen to shrink. A count that begins again within the
outermost loop leaves an inner loop alone, and tells nothing; nor does a loss, a clock, or a flag.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from types import CodeType, FrameType
from typing import Any, NamedTuple

from outpace.measure.expressions import Unknown, evaluate
from outpace.measure.loops import by_code, loops_around, training_frames
from outpace.measure.syntax import name_of, stored_in
from outpace.seams.where import short

Loop = ast.For | ast.While
MORE = (ast.Gt, ast.GtE)
LESS = (ast.Lt, ast.LtE)
STRICT = (ast.Gt, ast.Lt)
ALIKE = (ast.Eq, ast.Is)
UNLIKE = (ast.NotEq, ast.IsNot)
EXITS = ("exit", "quit", "_exit")
NUMBERS = (int, float)
VALUES = (*NUMBERS, str, bool, type(None))


class Limit(NamedTuple):
    """A condition that ends a loop once it is, or (``while``) is no more."""

    code: CodeType
    test: ast.expr
    while_: bool
    later: bool
    """what it counts is counted on after a step"""
    ends: bool
    """the training, and not only a loop inside of it"""
    counts: bool
    """nothing that it is of begins again within the training"""
    around: tuple[ast.expr, ...]
    """other conditions that it stands under, but those of what begins again: such are so now and then"""


class Limits:
    """What is missing until the loops are left, of which ``note`` is told."""

    def __init__(self, before: int = 0) -> None:
        self.before = before
        self._of: list[tuple[Limit, _Missing]] = []

    def begin(self) -> None:
        """Find the limits of the loops around the calling step."""
        found = limits_around(sys._getframe(1))
        self._of = [(limit, _Missing(self.before)) for limit in found]

    def note(self, steps: int) -> None:
        """So many steps are over."""
        if not self._of:
            return
        frames = by_code(sys._getframe(1))
        for limit, missing in self._of:
            if limit.counts and limit.code in frames:
                missing.note(steps, missing_for(limit, frames[limit.code]))

    def total(self) -> int | None:
        """Steps by the limit that comes first; None where none is known."""
        totals = [found for limit, one in self._of if (found := one.total(limit.later)) is not None]
        return min(totals, default=None)

    def others(self) -> list[str]:
        """``file:line`` of conditions by which the training may end, and that are no count."""
        return [
            f"{short(limit.code.co_filename)}:{limit.test.lineno}"
            for limit, missing in self._of
            if limit.ends and not limit.while_ and not (limit.counts and missing.counts)
        ]


class _Missing:
    """Of one limit, how much was missing after how many steps."""

    def __init__(self, before: int) -> None:
        self.before = before
        self.first: tuple[int, float] | None = None
        self.newest: tuple[int, float] | None = None
        """when it changed last"""
        self.counts = True

    def note(self, steps: int, missing: float | bool | None) -> None:
        if missing is None or isinstance(missing, bool):
            self.counts = self.counts and missing is not None
        elif self.first is None or self.newest is None:
            self.first = self.newest = (steps, missing)
        elif missing > self.newest[1]:
            self.counts = False  # it began again
        elif missing < self.newest[1]:
            self.newest = (steps, missing)

    def total(self, later: bool) -> int | None:
        if not self.counts or self.first is None or self.newest is None:
            return None
        (begun, most), (steps, missing) = self.first, self.newest
        if steps == begun:
            return None
        each = (steps - begun) / (most - missing)
        if each > 1:  # of the first count some steps were there before the first look at it
            return round(steps - 1 + missing * (steps - 1 - self.before) / (most - missing))
        return round(steps + missing * each - later)


def limits_around(frame: FrameType | None) -> list[Limit]:
    """Those that hold for the whole training, in the frames of its loops."""
    found: list[Limit] = []
    inner = False
    for each in reversed(training_frames(frame)):  # the outermost first
        loops = loops_around(each)
        if loops:
            own = set(each.f_code.co_varnames) if inner else set()
            again = _begin_again(loops[0], own)
            found += _limits_of(loops, each, again, None if inner else loops[0])
            inner = True
    return found


def _limits_of(
    loops: list[Loop], frame: FrameType, again: set[str], outermost: Loop | None
) -> Iterator[Limit]:
    counted = {
        ast.unparse(node.target): node.lineno
        for node in ast.walk(loops[0])
        if isinstance(node, ast.AugAssign)
    }

    def limit(test: ast.expr, while_: bool, loop: Loop, around: tuple[ast.expr, ...] = ()) -> Limit:
        named = _named(test)
        later = any(counted.get(name, 0) > frame.f_lineno for name in named)
        lasting = tuple(each for each in around if not again & _named(each))
        return Limit(
            frame.f_code, test, while_, later, loop is outermost, not again & named, lasting
        )

    for loop in loops:
        if isinstance(loop, ast.While) and not isinstance(loop.test, ast.Constant):
            yield limit(loop.test, True, loop)
        for test, around in _ways_out(loop.body):
            yield limit(test, False, loop, around)


def _ways_out(
    body: list[ast.stmt], around: tuple[ast.expr, ...] = ()
) -> Iterator[tuple[ast.expr, tuple[ast.expr, ...]]]:
    """Conditions on which a loop is left, each with those around it; not of loops and functions inside."""
    for statement in body:
        if isinstance(statement, ast.If):
            test = statement.test
            if _leaves(statement.body):
                yield test, around
            yield from _ways_out(statement.body, (*around, test))
            yield from _ways_out(statement.orelse, (*around, ast.UnaryOp(ast.Not(), test)))
        elif isinstance(statement, (ast.With, ast.Try)):
            for part in ("body", "orelse", "finalbody"):
                yield from _ways_out(getattr(statement, part, []), around)


def _leaves(body: list[ast.stmt]) -> bool:
    last = body[-1]
    if isinstance(last, ast.Expr) and isinstance(last.value, ast.Call):
        return name_of(last.value.func) in EXITS
    return isinstance(last, (ast.Break, ast.Return))


def _begin_again(outermost: Loop, own: set[str]) -> set[str]:
    """What is given a new value within a loop, other than by counting on.

    ``own``: names that the function around it begins with anew each time that it is called.
    """
    found: set[str] = set()
    for node in ast.walk(outermost):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                on = _named(target) & _named(node.value) and not isinstance(node.value, ast.IfExp)
                if not on:
                    found |= _given(target)
        elif isinstance(node, (ast.For, ast.comprehension)) and node is not outermost:
            found |= _given(node.target)
        elif isinstance(node, (ast.For, ast.AugAssign)):
            found |= _given(node.target) & own
    return found


def _given(target: ast.expr) -> set[str]:
    """What an assignment gives a value: of ``self.loss`` that alone, not ``self``; of an item what has it."""
    within = [one.value for one in ast.walk(target) if isinstance(one, ast.Subscript)]
    return stored_in(target).union(*map(_named, within))


def _named(node: ast.expr) -> set[str]:
    """Variables and attributes that an expression is of, as they are written."""
    return {
        ast.unparse(one) for one in ast.walk(node) if isinstance(one, (ast.Name, ast.Attribute))
    }


def missing_for(limit: Limit, frame: FrameType) -> float | bool | None:
    """How much is missing for the loop to be left; True where nothing is, False where it is not left.

    None where only running it would tell.
    """
    if any(_is_not_so(each, frame) for each in limit.around):
        return False
    try:
        return _missing(limit.test, frame, not limit.while_)
    except Exception:
        return None


def _is_not_so(test: ast.expr, frame: FrameType) -> bool:
    """Whether a condition surely does not hold by now; of one that only running it would tell it may."""
    try:
        return _missing(test, frame, True) is not True
    except Exception:
        return False


def _missing(node: ast.expr, frame: FrameType, wanted: bool) -> float | bool:
    """What is missing for a condition to become ``wanted``; True where it is, False where it stays.

    Raises Unknown where only running it would tell.
    """
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return _missing(node.operand, frame, not wanted)
    if isinstance(node, ast.BoolOp):
        return _missing_of_several(node, frame, wanted)
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        left, right = evaluate(node.left, frame), evaluate(node.comparators[0], frame)
        return _between(left, right, node.ops[0], wanted)
    value = evaluate(node, frame)
    if type(value) not in VALUES:
        raise Unknown
    return bool(value) is wanted


def _between(left: Any, right: Any, operation: ast.cmpop, wanted: bool) -> float | bool:
    if type(left) not in VALUES or type(right) not in VALUES:
        raise Unknown
    counts = type(left) in NUMBERS and type(right) in NUMBERS and left % 1 == 0 == right % 1
    if isinstance(operation, (*ALIKE, *UNLIKE)):
        alike = isinstance(operation, ALIKE) is wanted
        if (left == right) is alike:
            return True
        return right - left if alike and counts and right > left else False
    if not counts or not isinstance(operation, (*MORE, *LESS)):
        raise Unknown  # a loss is no count
    missing = right - left if isinstance(operation, MORE) is wanted else left - right
    missing += isinstance(operation, STRICT) is wanted
    return missing if missing > 0 else True


def _missing_of_several(node: ast.BoolOp, frame: FrameType, wanted: bool) -> float | bool:
    every = isinstance(node.op, ast.And) is wanted
    found: list[float | bool] = []
    unknown = False
    for each in node.values:
        try:
            found.append(_missing(each, frame, wanted))
        except Unknown:
            unknown = True
    if every:
        if False in [one for one in found if isinstance(one, bool)]:
            return False  # whatever the others are, as `None` where a limit is not set
        if unknown:
            raise Unknown
        return max((one for one in found if not isinstance(one, bool)), default=True)
    if True in [one for one in found if isinstance(one, bool)]:
        return True
    return min((one for one in found if not isinstance(one, bool)), default=False)
