"""The loops of the source around a running step, and which of them are over epochs, phases or trainings."""

from __future__ import annotations

import ast
import functools
import sys
import traceback
from types import CodeType, FrameType

import torch
from torch.optim import Optimizer

from outpace.measure import libraries
from outpace.measure.heads import SIZED, is_range, items_of, part_of_dict, unwrapped
from outpace.measure.syntax import has_line, name_of, names_in, parse
from outpace.seams.where import Place, is_package_file, lines_of, user_frames

OPTIMIZERS = frozenset(name for name, kind in vars(torch.optim).items() if isinstance(kind, type))
MOST_PHASES, MOST_INSIDE = 4, 2
"""of an epoch; loops within one of them: over batches, and over parts of a batch"""


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


def training_frames(frame: FrameType | None) -> list[FrameType]:
    """The frames around a step whose loops are the training's, the innermost first.

    The user's; and where none of these has a loop, and no trainer that can be asked is there, also those of
    the innermost package that has: a training is one call then, as ``model.learn(100_000)``. What calls it,
    as a search over settings does, is none of it.
    """
    users = list(user_frames(frame))
    known = any(map(libraries.knows, libraries.trainers(frame)))
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


def loops_with_frames(frame: FrameType | None) -> list[tuple[ast.For | ast.While, FrameType]]:
    """The training's loops around a frame's running line, the innermost first, each with its frame."""
    frames = training_frames(frame)
    return [(loop, each) for each in frames for loop in reversed(loops_around(each))]


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
    over = unwrapped(loop.iter)
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
    over = unwrapped(loop.iter)
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


def by_code(frame: FrameType | None) -> dict[CodeType, FrameType]:
    """A frame and its callers by the code that they run, of several the innermost."""
    found: dict[CodeType, FrameType] = {}
    while frame is not None:
        found.setdefault(frame.f_code, frame)
        frame = frame.f_back
    return found
