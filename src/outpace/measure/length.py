"""How long the whole run will be, read off the loops around the step.

``for epoch in range(args.epochs)`` is evaluated in its own frame, without calling anything; what
cannot be evaluated so is unknown.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import math
import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from types import CodeType, FrameType
from typing import Any, NamedTuple, TypeGuard

import psutil
import torch
from torch.optim import Optimizer

from outpace.measure import libraries
from outpace.measure.expressions import DATA_LOADER, Unknown, evaluate, length_of, variable
from outpace.measure.reached import reached
from outpace.measure.syntax import has_line, name_of, names_in
from outpace.seams.where import Place, is_package_file, is_user_file, lines_of, user_frames

BARS = ("tqdm", "track", "progress_bar")
WRAPPERS = (*BARS, "enumerate", "reversed")
SIZED = (list, tuple, dict)
SPLITTERS = ("KFold", "StratifiedKFold", "GroupKFold", "StratifiedGroupKFold", "TimeSeriesSplit")
"""of scikit-learn, whose first argument is the number of folds"""
PARTS_OF_DICT = ("items", "values", "keys")
OPTIMIZERS = frozenset(name for name, kind in vars(torch.optim).items() if isinstance(kind, type))
MOST_PHASES, MOST_INSIDE = 4, 2
"""of an epoch; loops within one of them: over batches, and over parts of a batch"""
UNSURE_S = 2.0
"""by which the times of a file and of a process may differ; the system tells its own start by the second"""


class Loop(NamedTuple):
    """A loop around the step. ``turns``: None where they are unknown, as those of ``while`` are."""

    turns: int | None
    over_range: bool
    """else it is over batches, of which a step may take several"""
    while_: bool = False
    """it goes on until something is so"""
    loader: bool = False
    """it is over a DataLoader: once its epoch is over, so is the loop"""


@functools.lru_cache(maxsize=64)
def parse(filename: str) -> ast.Module | None:
    """The syntax tree of a file; None where it cannot be read, or is no longer what is running."""
    try:
        with open(filename, encoding="utf-8") as file:
            if os.fstat(file.fileno()).st_mtime > _started() + UNSURE_S:
                return None  # edited since: its lines are others
            return ast.parse(file.read())
    except (OSError, SyntaxError, ValueError):
        return None


@functools.cache
def _started() -> float:
    """When this process was started, by the calendar's clock."""
    return psutil.Process().create_time()


def loops_around(frame: FrameType) -> list[ast.For | ast.While]:
    """The loops of this frame's own function that its running line is inside of, the outermost first."""
    return _own_loops(frame.f_code, frame.f_lineno)


@functools.lru_cache(maxsize=1024)
def loops_at(filename: str, line: int) -> tuple[ast.For | ast.While, ...]:
    """The loops of a file that this line is inside of, the outermost first; none where it cannot be read."""
    tree = parse(filename)
    loops = [
        node
        for node in (ast.walk(tree) if tree is not None else ())
        if isinstance(node, (ast.For, ast.While)) and has_line(node, line)
    ]
    return tuple(sorted(loops, key=lambda loop: loop.lineno))


def _own_loops(code: CodeType, line: int) -> list[ast.For | ast.While]:
    whole = code.co_name == "<module>"
    loops = loops_at(code.co_filename, line)
    return [loop for loop in loops if whole or loop.lineno >= code.co_firstlineno]


def lines_within(loop: ast.For | ast.While) -> range:
    """Those of a loop, its head's first."""
    return range(loop.lineno, (loop.end_lineno or loop.lineno) + 1)


def turns(loop: ast.For | ast.While, frame: FrameType) -> Loop:
    """How often a loop over a range or a list turns."""
    if isinstance(loop, ast.While):
        return Loop(None, False, while_=True)
    over = _unwrapped(loop.iter)
    loader = _is_over_loader(over, frame)
    try:
        count = count_of(over, frame)
    except Exception:
        count = None
    if count is not None:
        with contextlib.suppress(Exception):  # nothing tells: all of them
            count = len(_reached(loop, frame, count))
    return Loop(count, is_range(over), loader=loader)


def _reached(loop: ast.For, frame: FrameType, count: int) -> Sequence[int]:
    """Which of so many turns come to the line that runs, where that can be told by the loop's variable."""
    over, target = bare(loop.iter), loop.target
    numbered = isinstance(over, ast.Call) and name_of(over.func) == "enumerate"
    if isinstance(over, ast.Call) and numbered and isinstance(target, ast.Tuple):
        if len(over.args) != 1 or over.keywords:
            return range(count)
        target = target.elts[0]
    if not isinstance(target, ast.Name):
        return range(count)
    if numbered:
        items: Any = range(count)
    elif is_range(over):
        items = range_of(over, frame)
    elif isinstance(over, ast.List | ast.Tuple):
        items = [evaluate(each, frame) for each in over.elts]
    else:
        items = items_of(over, frame)
    if type(items) not in (range, list, tuple) or len(items) != count:
        return range(count)
    return reached(loop, frame, target.id, items)


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
        counts = [count_of(_unwrapped(each), frame) for each in over.args]
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


def _is_over_loader(over: ast.expr, frame: FrameType) -> bool:
    """Whether a loop draws from a DataLoader itself, alone or beside others."""
    if isinstance(over, ast.Call) and name_of(over.func) in ("zip", "islice"):
        return any(_is_over_loader(_unwrapped(each), frame) for each in over.args)
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
        if (count := count_of(_unwrapped(over), frame)) is not None:
            return count
    except Exception:
        return None
    if _is_over_loader(_unwrapped(over), frame):
        raise Unknown
    return None


def bare(over: ast.expr) -> ast.expr:
    """What a loop is over, without a progress bar around it."""
    return _unwrapped(over, BARS)


def _unwrapped(over: ast.expr, wrappers: tuple[str, ...] = WRAPPERS) -> ast.expr:
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
        end = min(end, length_of(evaluate(_unwrapped(first), frame)))
    return max(0, end - begin)


def counter_of(loop: ast.For, frame: FrameType) -> str | None:
    """The name by which a loop calls `range`, where its limits can be evaluated; None for other loops."""
    over = _unwrapped(loop.iter)
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


def loops_around_step() -> list[Loop]:
    """Each loop around the calling step, the innermost first; a library's is one over its steps."""
    found: list[Loop] = []
    frame: FrameType | None = sys._getframe(1)
    parts, looked_at = loops_over_parts(frame), training_frames(frame)
    while frame is not None:
        if frame in looked_at:
            around = [loop for loop in loops_around(frame) if loop not in parts]
            found += [turns(loop, frame) for loop in reversed(around)]
        elif (steps := libraries.steps_of(_trainer(frame))) is not None:
            found.append(Loop(steps, True))
        elif _searches(frame):
            found.append(Loop(None, False, while_=True))
        frame = frame.f_back
    return found


def by_code(frame: FrameType | None) -> dict[CodeType, FrameType]:
    """A frame and its callers by the code that they run, of several the innermost."""
    found: dict[CodeType, FrameType] = {}
    while frame is not None:
        found.setdefault(frame.f_code, frame)
        frame = frame.f_back
    return found


def training_frames(frame: FrameType | None) -> list[FrameType]:
    """The frames around a step whose loops are the training's, the innermost first.

    The user's; and where none of these has a loop, and no trainer that can be asked is there, also those of
    the innermost package that has: a training is one call then, as ``model.learn(100_000)``. What calls it,
    as a search over settings does, is none of it.
    """
    users = list(user_frames(frame))
    known = any(map(libraries.knows, _trainers(frame)))
    if known or not users or any(map(loops_around, users)):
        return users
    frames = [each for each, _ in traceback.walk_stack(frame)]
    between: list[FrameType] = []
    package: str | None = None
    for each in frames[: frames.index(users[-1]) + 1]:
        if each in users and between:
            break
        if is_package_file(each.f_code.co_filename):
            own = str(each.f_globals.get("__name__", "")).partition(".")[0]
            if own == package or (package is None and loops_around(each)):
                package = own
                between.append(each)
    return [each for each in frames if each in users or each in between] if between else users


def loops_over_parts(frame: FrameType | None) -> list[ast.For | ast.While]:
    """The loops around a step whose turns are all of one step or one epoch, and make it no longer."""
    around = loops_with_frames(frame)
    one_step = [loop for loop, each in around[:1] if _is_over_optimizers(loop, each)]
    return one_step + _phases_of(around[len(one_step) :])


def phases_around(frame: FrameType | None) -> list[ast.For | ast.While]:
    """The loops around a step that are over the phases of an epoch: within them are batches alone, and they
    are within a loop themselves. Others are over epochs, or trainings.
    """
    around = loops_with_frames(frame)
    one_step = bool(around) and _is_over_optimizers(*around[0])
    return _phases_of(around[one_step:])


def _phases_of(around: list[tuple[ast.For | ast.While, FrameType]]) -> list[ast.For | ast.While]:
    """Those among loops around a step, the innermost first."""
    found: list[ast.For | ast.While] = []
    for number, (loop, each) in enumerate(around[:-1]):
        inside = [one for one in around[:number] if one[0] not in found]
        batches = len(inside) <= MOST_INSIDE and not any(_counts(*one) for one in inside)
        if batches and is_over_phases(loop, each) and not _begins_training(loop):
            found.append(loop)
    return found


def loops_with_frames(frame: FrameType | None) -> list[tuple[ast.For | ast.While, FrameType]]:
    """The training's loops around a frame's running line, the innermost first, each with its frame."""
    frames = training_frames(frame)
    return [(loop, each) for each in frames for loop in reversed(loops_around(each))]


def _begins_training(loop: ast.For | ast.While) -> bool:
    """Whether an optimizer is made in a loop's body, by its name or by a function's that makes one."""
    nodes = (part for statement in loop.body for part in ast.walk(statement))
    names = (name_of(node.func) for node in nodes if isinstance(node, ast.Call))
    return any(
        name in OPTIMIZERS or ("optim" in name.lower() and "step" not in name) for name in names
    )


def _counts(loop: ast.For | ast.While, frame: FrameType) -> bool:
    """Whether a loop is over no batches. Over them is a range as long as data, or a ``while`` that asks for
    the next one.
    """
    if isinstance(loop, ast.While):
        return not any(
            _calls(each, "next") for statement in loop.body for each in ast.walk(statement)
        )
    over = _unwrapped(loop.iter)
    if is_range(over):
        return len(over.args) < 3 and not any(map(_sizes, ast.walk(over)))
    try:
        found = items_of(over, frame) if isinstance(over, ast.Name) else None
    except Exception:
        return False
    return type(found) is range and found.step == 1


def _sizes(node: ast.AST) -> bool:
    """Whether this is how long something is."""
    return _calls(node, "len", "size") or (isinstance(node, ast.Attribute) and node.attr == "shape")


def _calls(node: ast.AST, *names: str) -> bool:
    return isinstance(node, ast.Call) and name_of(node.func) in names


def is_over_phases(loop: ast.For | ast.While, frame: FrameType) -> bool:
    """Whether a loop may be over the parts of an epoch, as ``for phase in ["train", "val"]``: a few, and what
    it does hangs on its variable.
    """
    if isinstance(loop, ast.While) or not _is_over_few(loop.iter, frame):
        return False
    names = names_in(loop.target)
    nodes = [node for statement in loop.body for node in ast.walk(statement)]
    compared = (
        one
        for node in nodes
        if isinstance(node, ast.Compare)
        for one in (node.left, *node.comparators)
    )
    asked = (node.test for node in nodes if isinstance(node, ast.If | ast.IfExp))
    bare = (one.operand if isinstance(one, ast.UnaryOp) else one for one in asked)
    return any(isinstance(one, ast.Name) and one.id in names for one in (*compared, *bare))


def _is_over_few(over: ast.expr, frame: FrameType) -> bool:
    """Whether a loop is over a list that is written there, a list of names, or a dict."""
    if isinstance(over, ast.List | ast.Tuple):
        return len(over.elts) <= MOST_PHASES
    if isinstance(over, ast.Call) and not over.args and name_of(over.func) == "items":
        return True
    try:
        value = items_of(part_of_dict(over), frame)
    except Exception:
        return False
    few = type(value) in SIZED and len(value) <= MOST_PHASES
    return few and all(type(one) is str for one in value)


def _is_over_optimizers(loop: ast.For | ast.While, frame: FrameType) -> bool:
    """Whether a loop steps one optimizer after the other: all that is one step."""
    if isinstance(loop, ast.While):
        return False
    over = _unwrapped(loop.iter)
    each = over.args if isinstance(over, ast.Call) and name_of(over.func) == "zip" else [over]
    for items in each:
        try:
            value = items_of(part_of_dict(items), frame)
        except Exception:
            continue
        values = list(value.values()) if type(value) is dict else value
        if type(values) in (list, tuple) and any(isinstance(one, Optimizer) for one in values):
            return True
    return False


def part_of_dict(over: ast.expr) -> ast.expr:
    """The dict of whose items, values or keys a loop is; else what it is over."""
    asked = over.func if isinstance(over, ast.Call) and not over.args else None
    is_part = isinstance(asked, ast.Attribute) and asked.attr in PARTS_OF_DICT
    return asked.value if is_part and isinstance(asked, ast.Attribute) else over


def _searches(frame: FrameType) -> bool:
    """Whether this is a step of torch's optimizer, which calls its closure until something is so."""
    name = str(frame.f_globals.get("__name__", ""))
    if frame.f_code.co_name != "step" or not name.startswith("torch.optim."):
        return False
    try:
        return isinstance(variable(frame, "self"), Optimizer)
    except Unknown:
        return False


def library_ends() -> bool:
    """Whether a library's loop around the calling step ends after it: it is asked to."""
    return any(map(libraries.ask_to_end, _trainers(sys._getframe(1))))


def library_judges() -> bool:
    """Whether a library's loop around the calling step validates once more where it is asked to end."""
    return any(map(libraries.judges_at_end, _trainers(sys._getframe(1))))


def _trainers(frame: FrameType | None) -> Iterator[Any]:
    """Of the libraries' frames around a step, the innermost first."""
    while frame is not None:
        if not is_user_file(frame.f_code.co_filename):
            yield _trainer(frame)
        frame = frame.f_back


def _trainer(frame: FrameType) -> Any:
    """What a library's function around the step may train with."""
    if frame.f_code.co_name not in libraries.ENTRIES:
        return None
    try:
        return variable(frame, "self")
    except Unknown:
        return None


def place_of_step() -> Place:
    """The lines of the user's in which the calling step is, the innermost first."""
    return lines_of(sys._getframe(1))


def outermost_loop() -> Place:
    """The outermost loop around the calling step, and the lines of the calls by which it was come to."""
    found: list[tuple[CodeType, int]] = []
    for frame in reversed(list(user_frames(sys._getframe(1)))):
        loops = loops_around(frame)
        found.append((frame.f_code, loops[0].lineno if loops else frame.f_lineno))
        if loops:
            break
    return tuple(found)


def is_within(outermost: Place, lines: Place) -> bool:
    """Whether running lines are in an outermost loop, or may be; in its call where it is a library's."""
    if not outermost:
        return True
    code, line = outermost[-1]
    if not _own_loops(code, line):
        return outermost[0] in lines
    within = [
        loops[0].lineno for own, at in lines if own is code and (loops := _own_loops(own, at))
    ]
    return line in within


def total_steps(loops: list[Loop], epoch: float | None, micro_steps: float) -> int | None:
    """Steps of the whole run from the loops around a step and the steps of a loader's epoch.

    ``micro_steps``: batches of a step, where the loops are over batches.
    """
    unknown = [loop for loop in loops if loop.turns is None]
    if not loops or len(unknown) > 1 or (unknown and epoch is None):
        return None
    if unknown and unknown[0].while_ and loops[-1] is unknown[0]:
        return None  # the training goes on until something is so, whatever an epoch has
    known = math.prod(loop.turns for loop in loops if loop.turns is not None)
    if unknown:
        assert epoch is not None
        return max(1, round(epoch * known))
    if loops[0].over_range:
        return known
    return max(1, int(known // max(1.0, micro_steps)))
