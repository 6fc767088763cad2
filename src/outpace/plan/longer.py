"""Whether an epoch may get more batches than its loader has, so that the time before a deadline is used.

Where the time is up while an epoch's validation would run, there is none for another epoch, and the
training would end by up to a validation too early. Its last epoch then goes on with the batches of the
next. Only a plain ``for`` of the user's is given more turns than it counts on, and only one that does not
go by their number: that stores nothing by an index, looks nothing up by the number of a batch, tells no
function that number, and draws from no other iterator. Where the script divides by the length of its loader
or data, as for an epoch's mean loss, what it tells of that epoch is too much, which is said.
"""

from __future__ import annotations

import ast
import dis
import inspect
from collections.abc import Callable
from types import CodeType, FrameType

from outpace.measure.loops import loops_around
from outpace.measure.syntax import names_in, parse
from outpace.seams.where import is_user_file

HARMLESS = ("print", "str", "int", "float", "round", "min", "max", "divmod", "range", "len")
"""functions that may be told how many batches came before"""


class Longer:
    """Asked by the loaders; ``wanted`` says whether the time is to be used so now."""

    def __init__(self, wanted: Callable[[], bool]) -> None:
        self.wanted = wanted
        self.possible = False
        """in the loop that draws"""
        self.divided = False
        """by the number of its batches or samples, as the script knows it"""
        self._known: dict[tuple[CodeType, int], tuple[bool, bool]] = {}

    def drawn_in(self, frame: FrameType) -> None:
        """A batch of training is drawn there."""
        place = (frame.f_code, frame.f_lasti)
        if place not in self._known:
            self._known[place] = may_be_longer(frame), is_divided(frame)
        self.possible, self.divided = self._known[place]

    def more(self) -> bool:
        """Whether the epoch whose batches are all drawn goes on."""
        return self.possible and self.wanted()


def may_be_longer(frame: FrameType) -> bool:
    """Whether the frame is about to turn such a loop."""
    code = frame.f_code
    if code.co_flags & (inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR):
        return False  # who draws from it may count on its turns
    if dis.opname[code.co_code[frame.f_lasti]] != "FOR_ITER" or not is_user_file(code.co_filename):
        return False
    loops = loops_around(frame)
    if not loops or not isinstance(loops[-1], ast.For):
        return False
    return not goes_by_number(loops[-1])


def is_divided(frame: FrameType) -> bool:
    """Whether the number of turns of the frame's loop, as the script knows it, is divided by."""
    loops, tree = loops_around(frame), parse(frame.f_code.co_filename)
    return bool(loops) and tree is not None and divides_by_length(loops[-1], tree)


def goes_by_number(loop: ast.For) -> bool:
    """Whether a turn may look something up, or store it, by how many came before."""
    numbers, by_one = counters(loop), counted(loop)
    for node in ast.walk(loop):
        if isinstance(node, ast.Subscript) and not isinstance(node.slice, ast.Constant):
            if isinstance(node.ctx, ast.Store) or numbers & written_in(node.slice):
                return True
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            given = [*node.args, *(word.value for word in node.keywords)]
            told = node.func.id not in HARMLESS and any(by_one & written_in(one) for one in given)
            if told or node.func.id == "next":
                return True
    return False


def written_in(node: ast.expr) -> set[str]:
    """Names and attributes, as they are written."""
    return {
        ast.unparse(part) for part in ast.walk(node) if isinstance(part, (ast.Name, ast.Attribute))
    }


def counters(loop: ast.For) -> set[str]:
    """Names and attributes that change by their own value from turn to turn, and that of `enumerate`."""
    nodes = list(ast.walk(loop))
    found = {ast.unparse(node.target) for node in nodes if isinstance(node, ast.AugAssign)}
    for node in nodes:
        if isinstance(node, ast.Assign):
            found |= {*map(ast.unparse, node.targets)} & written_in(node.value)
    return found | enumerated(loop)


def counted(loop: ast.For) -> set[str]:
    """Those of them that go up by a whole number each turn; sums of losses, say, do not."""
    found = enumerated(loop)
    for node in ast.walk(loop):
        if isinstance(node, ast.AugAssign) and is_whole(node.value):
            found.add(ast.unparse(node.target))
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.BinOp):
            parts = (node.value.left, node.value.right)
            if any(map(is_whole, parts)):
                found |= {*map(ast.unparse, node.targets)} & {*map(ast.unparse, parts)}
    return found


def enumerated(loop: ast.For) -> set[str]:
    """The number that `enumerate` gives."""
    numbered = any(
        isinstance(node, ast.Call) and names_in(node.func) == {"enumerate"}
        for node in ast.walk(loop.iter)
    )
    if numbered and isinstance(loop.target, ast.Tuple):
        return names_in(loop.target.elts[0])
    return set()


def is_whole(node: ast.expr) -> bool:
    """Whether that is a whole number, as it is written."""
    return isinstance(node, ast.Constant) and type(node.value) is int


def divides_by_length(loop: ast.For | ast.While, tree: ast.Module) -> bool:
    """Whether a file takes a share of the length of a loop's loader, or of its data set's."""
    if isinstance(loop, ast.While):
        return False
    sources = names_in(loop.iter)
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            made = {name for target in node.targets for name in names_in(target)}
            if made & sources and node.value.args:
                sources |= names_in(node.value.args[0])  # the data set
    lengths = {
        name
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and is_length(node.value, sources)
        for target in node.targets
        for name in names_in(target)
    }
    return any(
        isinstance(node, ast.BinOp)
        and isinstance(node.op, (ast.Div, ast.FloorDiv))
        and (is_length(node.right, sources) or names_in(node.right) & lengths)
        for node in ast.walk(tree)
    )


def is_length(node: ast.expr, sources: set[str]) -> bool:
    """Whether that is ``len`` of one of these, or of something of theirs."""
    return (
        isinstance(node, ast.Call)
        and names_in(node.func) == {"len"}
        and bool(node.args)
        and bool(names_in(node.args[0]) & sources)
    )
