"""Leaving the loops around a training step as ``break`` would, in a script that has no such line.

The lines after the loop are the script's own ending: it saves, and evaluates for the last time. A
trace function may move a frame on to another line, as debuggers do (``frame.f_lineno``). It is set
when the time is up, for the frames of the user's loops alone, and goes where a loop is about to
turn again: what the loop's body had left to do is done. Until then nothing is traced.

A line may stand for several places in the code, of which some expect a value on the stack and would
take the loop's iterator for it (the end of a ``with``, a call over several lines). Such a line is gone
to by way of a plain one beside the loop, where the stack holds what it holds when the loop is over.

A loop over the phases of an epoch, to train and to validate, comes to its own end.

A loop that nothing follows in its function cannot be left so. Where nothing at all is left to do
after it, in any caller, the script ends there with exit code 0; else it is begun anew over nothing, be it
over a range (`outpace.plan.over_nothing`) or anything else (`outpace.plan.no_items`), or the limit that a
``while`` counts up to is lowered (`outpace.plan.lower_limit`). Other loops have to go on.
"""

from __future__ import annotations

import ast
import contextlib
import dis
import inspect
import re
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any, NamedTuple, TypeGuard

from outpace.measure.expressions import evaluate
from outpace.measure.loops import lines_within, loops_around, phases_around, training_frames
from outpace.measure.syntax import has_line, name_of, names_in, parse
from outpace.plan.lower_limit import Limit, limit_of, lower
from outpace.plan.no_items import Over, begin_over_none, over_of
from outpace.plan.over_nothing import Anew, anew, begin_over_nothing, go_to
from outpace.seams.where import first_line, is_user_file, user_frames

Loop = ast.For | ast.While
ENDS = (ast.For, ast.While, ast.FunctionDef, ast.AsyncFunctionDef, ast.Module)
"""in which a statement that is the last has none to follow"""
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
MANY = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.Lambda)
"""which may call something again and again"""
SAVES = re.compile(
    r"_?save(_?(model|state|weights|checkpoint|ckpt|pretrained|file|best|last|all)\w*)?"
)
"""names of functions that save weights; ``savefig`` and ``save_hyperparameters`` do not"""
OTHER_SAVES = re.compile(
    r"np|numpy|plt|(fig|im|image|img|picture|sample|plot)(s|_.*)?$", re.IGNORECASE
)
"""names of what is no weights, as where a curve or a picture is saved"""
PLAIN = (ast.Expr, ast.Assign, ast.AugAssign, ast.AnnAssign)
PASS_ON = frozenset(["absl", "accelerate", "functools", "outpace", "runpy", "torch"])
"""libraries that have nothing left to do once what they call ends; others call one command after the other,
or the rest of a generator
"""
TRIES = 100
"""lines at which a loop is left late. Behind a call of more than some twenty arguments the interpreter (3.11
and 3.12) has lost count of what is on its stack, and moves a frame from there to nowhere, for the rest of
that turn
"""
Way = tuple[int, ...]
"""lines to go to, one after the other"""
OVER: Way = ()
"""no line: the script has nothing left to do"""


class Exit(NamedTuple):
    """The line at which a loop turns, its lines, the way to what follows, and the outermost loop it leaves.

    Loops of a frame are numbered from the outermost on. ``instead``: there is no way, but this loop can begin
    anew over nothing, or its limit can be lowered.
    """

    line: int
    lines: range
    way: Way
    leaves: int
    instead: Anew | Limit | Over | None = None
    late: bool = False
    """it could not be left there, and is left at any of its lines"""

    def is_at(self, line: int) -> bool:
        """Whether it is to be left there."""
        return line in self.lines if self.late else line == self.line


@dataclass
class Exits:
    """The exits of one frame's loops, the innermost first.

    ``loops``: those that are to be left, the outermost first, whose lines are ``lines``.
    """

    frame: FrameType
    loops: list[Loop]
    lines: range
    left: list[Exit] = field(default_factory=list)
    tries: int = TRIES
    """that are left to be late"""


def ways_out(frame: FrameType | None, keep: int = 0) -> tuple[list[Exits], bool]:
    """The exits of the training's loops around a frame, and whether the outermost of them has one.

    ``keep``: so many loops, from the outermost on, are not to be left: they are none of those.
    """
    found: list[Exits] = []
    last = False
    over = is_all_of_it(frame) and not keep
    phases = phases_around(frame)
    for each in reversed(training_frames(frame)):  # the outermost first
        over = over and is_user_file(each.f_code.co_filename)  # a package's callers may go on
        around = loops_around(each)
        loops, keep = around[keep:], max(0, keep - len(around))
        if loops:
            exits, left = _exits(each, loops, phases, over)
            last = left if not found else last
            found.append(exits)
        over = over and _ends_with_call(each)
    return found, last


def loops_of(exits: list[Exits]) -> list[Loop]:
    """The loops that are to be left, the innermost last."""
    return [loop for each in exits for loop in each.loops]


def is_all_of_it(frame: FrameType | None) -> bool:
    """Whether all that is left to do is in these frames: not in a thread or a task, whose result is waited
    for, nor in a library that goes on after what it calls.
    """
    if threading.current_thread() is not threading.main_thread():
        return False
    frames = [each for each, _ in traceback.walk_stack(frame)]
    own = [number for number, each in enumerate(frames) if is_user_file(each.f_code.co_filename)]
    if not own:
        return False
    outermost = frames[own[-1]]
    begins = outermost.f_code.co_name == "<module>" and _package(outermost) == "__main__"
    users = {_package(frames[number]) for number in own}
    return begins and {_package(each) for each in frames[own[0] : own[-1]]} <= users | PASS_ON


def _package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


def follow(exits: list[Exits], done: Callable[[], None]) -> bool:
    """Have each loop end where it would turn, and call ``done`` when the outermost one has ended.

    That may also be by itself, a ``break``, a ``return``, or an exception such as that of Ctrl-C. False
    where none can be ended, or something else traces this thread.
    """
    if sys.gettrace() is not None or not exits:
        return False
    for each in exits:
        if each.left or each is exits[0]:  # which may end by itself, as its loader has run dry
            each.frame.f_trace = _guide(each, exits, done)
    sys.settrace(_no_new_frames)
    return any(each.left for each in exits)


def _no_new_frames(frame: FrameType, event: str, arg: Any) -> None:
    return None


def _nothing(frame: FrameType, event: str, arg: Any) -> None:
    """Traces nothing of a frame, while others are traced."""


def _guide(own: Exits, exits: list[Exits], done: Callable[[], None]) -> Any:
    def guide(frame: FrameType, event: str, arg: Any) -> Any:
        ended = _has_ended(own, frame, event)
        here = next((each for each in own.left if each.is_at(frame.f_lineno)), None)
        if not ended and (event != "line" or here is None):
            return guide
        leaves = here.leaves if here is not None and not ended else 0
        before = own.left
        own.left = [] if ended else [each for each in own.left if each.leaves < leaves]
        outermost = own is exits[0] and leaves == 0
        over = outermost or not any(each.left for each in exits)
        then = guide if own.left else None
        after = None if over else then or _nothing
        traced = None
        if here is not None and not ended:
            try:
                if isinstance(here.instead, Limit):
                    traced = lower(here.instead, frame, after)
                elif isinstance(here.instead, Over):
                    traced = begin_over_none(here.instead, frame, after)
                elif here.instead is not None:
                    traced = begin_over_nothing(here.instead, frame, after)
                for line in here.way:
                    go_to(frame, line)
            except ValueError:
                if own.tries:
                    own.tries -= 1
                    late = here._replace(late=True)
                    own.left = [late if each is here else each for each in before]
                    return guide
                sys.settrace(None)  # the interpreter knows better: the loop goes on
                return None
        if outermost:
            done()
        if over and traced is None:
            sys.settrace(None)
        if here is None or ended:
            return None
        if here.way == OVER and traced is None:
            raise SystemExit(0)
        return traced or then

    return guide


def _has_ended(own: Exits, frame: FrameType, event: str) -> bool:
    """Whether a frame's loops have ended by themselves."""
    if event == "return":
        # A generator that yields is told as one that returns.
        return dis.opname[frame.f_code.co_code[frame.f_lasti]] != "YIELD_VALUE"
    return event == "line" and frame.f_lineno not in own.lines


def _exits(
    frame: FrameType, loops: list[Loop], phases: list[Loop], over: bool
) -> tuple[Exits, bool]:
    """A frame's exits, and whether its outermost loop has one; ``over``: its callers are done."""
    exits = Exits(frame, loops, lines_within(loops[0]))
    tree = parse(frame.f_code.co_filename)
    if tree is None:
        return exits, False
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    way: Way | None = OVER if over else None
    leaves = 0
    ways: list[tuple[Way | None, int]] = []
    others: list[Anew | Limit | Over | None] = []
    for number, loop in enumerate(loops):  # the outermost first
        if loop in phases:
            way = None  # nor is it left from inside of it
            ways.append((None, number))
            others.append(None)
            continue
        following, inside = _following(loop, parents)
        if following is not None:
            way, leaves = _way_to(frame.f_code, following, _beside(loop, parents)), number
        elif inside:
            way = None
        ways.append((way, leaves))
        others.append(_otherwise(loop, frame) if way is None else None)
    for number, loop in reversed(list(enumerate(loops))):
        (way, leaves), instead = ways[number], others[number]
        if instead is not None:
            way, leaves = OVER, number
        if way is not None:
            lines = lines_within(loop)
            exits.left += [Exit(each, lines, way, leaves, instead) for each in _heads(loop)]
    return exits, ways[0][0] is not None or others[0] is not None


def _otherwise(loop: Loop, frame: FrameType) -> Anew | Limit | Over | None:
    """How a loop ends that there is no way out of."""
    return anew(loop, frame) or limit_of(loop, frame) or over_of(loop, frame)


def _heads(loop: Loop) -> set[int]:
    """Lines at which a loop turns."""
    if isinstance(loop, ast.For):
        return {loop.lineno, loop.iter.lineno}
    if isinstance(loop.test, ast.Constant):
        return {loop.body[0].lineno}
    return {loop.lineno, loop.test.lineno}


def _following(loop: ast.stmt, parents: dict[ast.AST, ast.AST]) -> tuple[ast.stmt | None, bool]:
    """The statement that is next when a loop is over, up to the loop or function around it.

    Also whether none is there because something else comes first that has to be gone through: the
    end of a ``with``, a ``finally``, an ``except`` that would catch the end of the script.
    """
    here: ast.AST = loop
    caught = False
    """whether what ends the script would be caught on the way"""
    while True:
        parent = parents.get(here)
        if parent is None:
            return None, caught
        for _, block in ast.iter_fields(parent):
            if isinstance(block, list) and here in block:
                rest = block[block.index(here) + 1 :]
                if rest and not isinstance(here, ast.ExceptHandler):
                    return rest[0], False
        if _tries(parent, here):
            if parent.orelse:
                return parent.orelse[0], False
            caught = caught or any(_catches_exit(handler) for handler in parent.handlers)
        elif isinstance(parent, ENDS):
            return None, caught
        elif not isinstance(parent, ast.If):
            return None, True
        here = parent


def _tries(parent: ast.AST, here: ast.AST) -> TypeGuard[ast.Try]:
    """Whether it is a ``try`` of that, and nothing has to be done in any case after it."""
    return isinstance(parent, ast.Try) and here in parent.body and not parent.finalbody


def _catches_exit(handler: ast.ExceptHandler) -> bool:
    """Whether an ``except`` takes SystemExit too."""
    if handler.type is None:
        return True
    return bool(names_in(handler.type) & {"BaseException", "SystemExit"})


def _beside(loop: ast.stmt, parents: dict[ast.AST, ast.AST]) -> list[int]:
    """Lines of plain statements in the same block as a loop, or beside what has it in a body as its own."""
    here: ast.AST = loop
    found: list[int] = []
    while True:
        parent = parents[here]
        blocks = [b for _, b in ast.iter_fields(parent) if isinstance(b, list) and here in b]
        plain = [each for block in blocks for each in block if isinstance(each, PLAIN)]
        found += [each.lineno for each in plain if each.lineno == each.end_lineno]
        if not (_tries(parent, here) or isinstance(parent, ast.If)):
            return found
        here = parent


def _way_to(code: CodeType, statement: ast.stmt, beside: list[int]) -> Way | None:
    """How to get to the first instruction of a statement; None where no way is safe."""
    places = Counter(line for _, line in dis.findlinestarts(code))
    end = statement.end_lineno or statement.lineno
    begin = first_line(statement)
    own = [line for _, line in dis.findlinestarts(code) if begin <= (line or 0) <= end]
    if not own or own[0] is None:
        return None
    line = own[0]
    if places[line] == 1:
        return (line,)
    # From one that comes later the script would go on, were there no way from it.
    by = max((each for each in beside if places[each] == 1 and each != line), default=None)
    return None if by is None else (by, line)


def _ends_with_call(frame: FrameType) -> bool:
    """Whether a frame has nothing left to do after the statement that it is in."""
    tree = parse(frame.f_code.co_filename)
    if tree is None:
        return False
    line = frame.f_lineno
    around = [
        node for node in ast.walk(tree) if isinstance(node, ast.Expr) and has_line(node, line)
    ]
    if len(around) != 1 or any(isinstance(node, MANY) for node in ast.walk(around[0])):
        return False
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    following, inside = _following(around[0], parents)
    in_loop = bool(loops_around(frame))
    return following is None and not inside and not in_loop


def evaluates_after(frame: FrameType | None, judging: Collection[CodeType] = ()) -> bool:
    """Whether a function of the user's that is called in the outermost loop is called after it too.

    After it in its own function, or after the running line in one of those that called it. ``judging``: the
    functions that validate, once that is known; until then any may.
    """
    frames = list(user_frames(frame))
    around = [number for number, each in enumerate(frames) if loops_around(each)]
    if not around:
        return False
    outermost, callers = frames[around[-1]], frames[around[-1] + 1 :]
    loop = loops_around(outermost)[0]
    within = {code for code in _called([loop], outermost) if not judging or code in judging}
    if not within:
        return False
    lines = [(outermost, loop.lineno), *((each, each.f_lineno) for each in callers)]
    return any(within & _called(_after(each, line), each) for each, line in lines)


def saves(frame: FrameType | None) -> bool:
    """Whether a file of the user's that is running saves what is learnt, by the name of what it calls."""
    trees = [parse(each.f_code.co_filename) for each in user_frames(frame)]
    nodes = [node for tree in trees if tree is not None for node in ast.walk(tree)]
    return any(map(_is_save, nodes))


def saves_last_only(exits: list[Exits]) -> bool:
    """Whether a script saves what is learnt in the last turn alone of the outermost loop that is to be left,
    which is not to be: ``if epoch == epochs - 1: torch.save(...)``.
    """
    if not exits or not is_user_file(exits[0].frame.f_code.co_filename):
        return False
    outermost = exits[0].loops[0]
    counters = names_in(outermost.target if isinstance(outermost, ast.For) else outermost.test)
    lasts = [
        node
        for loop in loops_of(exits)
        for node in ast.walk(loop)
        if isinstance(node, ast.If)
        and _is_last(node.test)
        and (not counters or counters & names_in(node.test))
    ]
    then = {id(part) for node in lasts for each in node.body for part in ast.walk(each)}
    saves = [id(node) for node in _calls_that_save(exits[-1].frame)]
    return bool(saves) and then.issuperset(saves)


def _calls_that_save(frame: FrameType) -> Iterator[ast.AST]:
    """In the files of the user's that are running, but not within functions that are called for it."""
    trees = [parse(each.f_code.co_filename) for each in user_frames(frame)]
    left: list[ast.AST] = [tree for tree in dict.fromkeys(trees) if tree is not None]
    while left:
        node = left.pop()
        if not (isinstance(node, FUNCTIONS) and SAVES.fullmatch(getattr(node, "name", ""))):
            left += ast.iter_child_nodes(node)
        if _is_save(node):
            yield node


def _is_save(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call) or not SAVES.fullmatch(name_of(node.func)):
        return False
    owner = node.func.value if isinstance(node.func, ast.Attribute) else None
    return not (isinstance(owner, ast.Name) and OTHER_SAVES.fullmatch(owner.id))


def _is_last(test: ast.expr) -> bool:
    """Whether something is compared with a number less one, or one more than it with that number."""
    if isinstance(test, ast.BoolOp):  # with `or` it may be another turn too
        return isinstance(test.op, ast.And) and any(map(_is_last, test.values))
    return (
        isinstance(test, ast.Compare)
        and isinstance(test.ops[0], ast.Eq)
        and any(
            isinstance(part, ast.BinOp)
            and isinstance(part.op, ast.Add | ast.Sub)
            and isinstance(part.right, ast.Constant)
            and part.right.value == 1
            for part in (test.left, test.comparators[0])
        )
    )


def _after(frame: FrameType, line: int) -> Iterator[ast.stmt]:
    """The statements that come after that of a line in its function."""
    tree = parse(frame.f_code.co_filename)
    if tree is None:
        return
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    there = [node for node in parents if isinstance(node, ast.stmt) and has_line(node, line)]
    here: ast.AST = max(there, key=lambda node: node.lineno, default=tree)
    while here in parents and not isinstance(here, FUNCTIONS):
        for _, block in ast.iter_fields(parents[here]):
            if isinstance(block, list) and here in block:
                rest = block[block.index(here) + 1 :]
                yield from (each for each in rest if isinstance(each, ast.stmt))
        here = parents[here]


def _called(nodes: Iterable[ast.AST], frame: FrameType) -> set[CodeType]:
    """The user's functions that are called there, as far as the frame tells what their names stand for."""
    found: set[CodeType] = set()
    for node in (inner for each in nodes for inner in ast.walk(each)):
        if isinstance(node, ast.Call):
            with contextlib.suppress(Exception):
                code = inspect.unwrap(evaluate(node.func, frame)).__code__
                if is_user_file(code.co_filename):
                    found.add(code)
    return found
