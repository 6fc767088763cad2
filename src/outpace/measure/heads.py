"""What a loop's head says: what the loop is over, how many turns that gives, and which of them runs.

``for epoch in range(args.epochs)`` is evaluated in its own frame, without calling anything; what cannot be
evaluated so is unknown.
"""

from __future__ import annotations

import ast
import contextlib
import math
from collections.abc import Sequence
from types import FrameType
from typing import Any, NamedTuple, TypeGuard

from outpace.measure.expressions import DATA_LOADER, Unknown, evaluate, length_of
from outpace.measure.syntax import name_of

BARS = ("tqdm", "track", "progress_bar")
WRAPPERS = (*BARS, "enumerate", "reversed")
SIZED = (list, tuple, dict)
SPLITTERS = ("KFold", "StratifiedKFold", "GroupKFold", "StratifiedGroupKFold", "TimeSeriesSplit")
"""of scikit-learn, whose first argument is the number of folds"""
PARTS_OF_DICT = ("items", "values", "keys")
MOST_ITEMS = 1_000_000
"""of a list whose items are told apart"""


class Head(NamedTuple):
    """A loop's variable, and what it is in each turn. ``items``: a range or a list; of what has several
    variables those of the first.
    """

    name: str
    items: Sequence[Any]


def head_of(loop: ast.For | ast.While, frame: FrameType) -> Head | None:
    """What tells a loop's turns apart; None where nothing does."""
    if isinstance(loop, ast.While):
        return None
    over, target = bare(loop.iter), loop.target
    first = isinstance(target, ast.Tuple)
    variable = target.elts[0] if isinstance(target, ast.Tuple) and target.elts else target
    if not isinstance(variable, ast.Name):
        return None
    try:
        if isinstance(over, ast.Call) and name_of(over.func) == "enumerate":
            items: Any = _numbers(over, frame) if first else None
        else:
            items = _items(over, frame, first=first)
            if first and type(items) in (list, tuple) and len(items) <= MOST_ITEMS:
                made = all(type(item) in (list, tuple) for item in items)
                items = [item[0] for item in items] if made else None
    except Exception:
        return None
    if type(items) not in (range, list, tuple) or len(items) > MOST_ITEMS:
        return None
    return Head(variable.id, items)


def _numbers(over: ast.Call, frame: FrameType) -> range | None:
    """Of the turns of a loop over what is enumerated."""
    if len(over.args) != 1 or over.keywords:
        return None
    count = count_of(bare(over.args[0]), frame)
    return range(length_of(_items(bare(over.args[0]), frame)) if count is None else count)


def _items(over: ast.expr, frame: FrameType, *, first: bool = False) -> Any:
    """What a loop is over: a range, what a list that is written there has, or what is evaluated; None where
    its items are made as they are asked for. ``first``: the loop has names for what they are made of.
    """
    if is_range(over):
        return range_of(over, frame)
    if isinstance(over, ast.List | ast.Tuple):
        return [_written(each, frame, first=first) for each in over.elts]
    parted = part_of_dict(over)
    items = items_of(parted, frame)
    if type(items) is not dict:
        return items if parted is over else None
    asked = name_of(over.func) if isinstance(over, ast.Call) and parted is not over else "keys"
    return list(getattr(items, asked)()) if first or asked != "items" else None


def _written(item: ast.expr, frame: FrameType, *, first: bool) -> Any:
    """An item of such a list; of several things that it is made of the first one alone."""
    if first and isinstance(item, ast.Tuple | ast.List) and item.elts:
        return (evaluate(item.elts[0], frame),)
    return evaluate(item, frame)


def count_of(over: ast.expr, frame: FrameType) -> int | None:
    """Turns of a loop over this; None, or an error, where they cannot be told."""
    written = part_of_dict(over)
    if isinstance(written, ast.List | ast.Tuple | ast.Dict):
        return _count_written(written)
    if is_range(over):
        return len(range_of(over, frame))
    if isinstance(over, ast.Call) and name_of(over.func) == "zip":
        return min(
            (n for each in over.args if (n := _limit(each, frame)) is not None), default=None
        )
    if isinstance(over, ast.Call) and is_slice(over):
        return _turns_of_slice(over, frame)
    if isinstance(over, ast.Call) and name_of(over.func) == "product" and not over.keywords:
        counts = [count_of(unwrapped(each), frame) for each in over.args]
        return math.prod(count for count in counts if count is not None) if all(counts) else None
    if (folds := folds_of(over, frame)) is not None:
        return folds
    value = items_of(written, frame)
    return len(value) if isinstance(value, SIZED) else None


def _count_written(items: ast.List | ast.Tuple | ast.Dict) -> int | None:
    """Those of a list, say, that the loop itself is over; None where some are of another one."""
    if isinstance(items, ast.Dict):
        return len(items.keys) if all(key is not None for key in items.keys) else None
    return None if any(isinstance(one, ast.Starred) for one in items.elts) else len(items.elts)


def folds_of(over: ast.expr, frame: FrameType) -> int | None:
    """Folds that a cross-validation of scikit-learn's gives, ``KFold(5).split(x)``; None of anything else."""
    if not (isinstance(over, ast.Call) and isinstance(over.func, ast.Attribute)):
        return None
    if over.func.attr != "split":
        return None
    made = over.func.value
    try:
        if isinstance(made, ast.Call):
            kind = evaluate(made.func, frame)
            given = [word.value for word in made.keywords if word.arg == "n_splits"] or made.args[
                :1
            ]
            known = _is_sklearns(kind) and kind.__name__ in SPLITTERS
            return int(evaluate(given[0], frame)) if known else None
        splitter = evaluate(made, frame)
        return int(splitter.get_n_splits()) if _is_sklearns(type(splitter)) else None
    except Exception:
        return None  # one that leaves out each sample has to be given them


def _is_sklearns(kind: type) -> bool:
    return kind.__module__.split(".")[0] == "sklearn"


def items_of(over: ast.expr, frame: FrameType) -> Any:
    """What a loop is over that is evaluated so, without the progress bar that may be around it."""
    value = evaluate(over, frame)
    return value.iterable if type(value).__module__.split(".")[0] == "tqdm" else value


def is_over_loader(over: ast.expr, frame: FrameType) -> bool:
    """Whether a loop draws from a DataLoader itself, alone or beside others."""
    if isinstance(over, ast.Call) and name_of(over.func) in ("zip", "islice"):
        return any(is_over_loader(unwrapped(each), frame) for each in over.args)
    try:
        kinds = type(items_of(over, frame)).__mro__
    except Exception:
        return False
    return any(kind.__module__ == DATA_LOADER for kind in kinds)


def _limit(over: ast.expr, frame: FrameType) -> int | None:
    """Turns that one of several iterables allows; None: it is taken to go on. Unknown for a DataLoader.

    Of such a one an epoch that is over tells more: it may be left early, or end before.
    """
    try:
        if (count := count_of(unwrapped(over), frame)) is not None:
            return count
    except Exception:
        return None
    if is_over_loader(unwrapped(over), frame):
        raise Unknown
    return None


def bare(over: ast.expr) -> ast.expr:
    """What a loop is over, without a progress bar around it."""
    return unwrapped(over, BARS)


def unwrapped(over: ast.expr, wrappers: tuple[str, ...] = WRAPPERS) -> ast.expr:
    while isinstance(over, ast.Call) and over.args and name_of(over.func) in wrappers:
        over = over.args[0]
    return over


def is_range(over: ast.expr) -> TypeGuard[ast.Call]:
    """Whether a loop counts."""
    return isinstance(over, ast.Call) and name_of(over.func) in ("range", "trange")


def is_slice(over: ast.Call) -> bool:
    """Whether a loop is over the first so many of something."""
    return name_of(over.func) == "islice" and len(over.args) in (2, 3)


def _turns_of_slice(over: ast.Call, frame: FrameType) -> int | None:
    """Items from one place on to another; None where there may be fewer, or all are taken."""
    first, *limits = over.args
    begin, end = [0, *(evaluate(each, frame) for each in limits)][-2:]
    if not isinstance(begin, int) or not isinstance(end, int):
        return None
    # Not known of a generator, say: whoever cuts it off has it go on for longer.
    with contextlib.suppress(Exception):
        end = min(end, length_of(evaluate(unwrapped(first), frame)))
    return max(0, end - begin)


def counter_of(loop: ast.For, frame: FrameType) -> str | None:
    """The name by which a loop calls `range`, where its limits can be evaluated; None for other loops."""
    over = unwrapped(loop.iter)
    if not is_range(over) or not isinstance(over.func, ast.Name):
        return None
    try:
        range_of(over, frame)
    except Exception:
        return None
    return over.func.id


def range_of(over: ast.expr, frame: FrameType) -> range:
    """What it counts through; Unknown, or another error, where its limits cannot be evaluated."""
    assert isinstance(over, ast.Call)
    return range(*(int(evaluate(each, frame)) for each in over.args))


def part_of_dict(over: ast.expr) -> ast.expr:
    """The dict of whose items, values or keys a loop is; else what it is over."""
    asked = over.func if isinstance(over, ast.Call) and not over.args else None
    is_part = isinstance(asked, ast.Attribute) and asked.attr in PARTS_OF_DICT
    return asked.value if is_part and isinstance(asked, ast.Attribute) else over
