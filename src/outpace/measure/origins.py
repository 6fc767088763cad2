"""Which of the script's lines the operators of a step come from: their most calls, and their longest.

Each operator is laid at the stack of the script's lines that called it. A loop that the backward pass or the
optimizer is called in is a training's own; any other with most of the calls before the backward pass is told,
as of a recurrent network written out, or of a loss that takes row by row.
"""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from functools import lru_cache
from types import FrameType
from typing import NamedTuple

from outpace.measure.loops import loops_at
from outpace.measure.syntax import parse
from outpace.records.compute import MOSTLY, Calls, Dearest
from outpace.seams.where import short, user_frames

Function = tuple[str, str]
"""file and name"""
Loop = tuple[str, str, int]
"""file, function and the line that it begins at"""


class Place(NamedTuple):
    """A line that is running."""

    file: str
    function: str
    line: int
    first: int
    """the function's first line"""

    def __str__(self) -> str:
        return f"{short(self.file)}:{self.line}"


Stack = tuple[Place, ...]
"""from the innermost line outwards"""

OF_MODELS = ("forward", "__call__", "<module>")
COMPREHENSIONS = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")
IN_LINE = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


class Origins:
    """Sees the operators of one step."""

    def __init__(self) -> None:
        self.calls: Counter[Stack] = Counter()
        """operators before the backward pass"""
        self.seconds: defaultdict[tuple[Place, bool], defaultdict[str, float]] = defaultdict(
            lambda: defaultdict(float)
        )
        """of these, by the innermost line, whether no model's call calls it, and their name"""
        self.others: set[Stack] = set()
        """where what comes afterwards is called from"""
        self.updates: Counter[Place] = Counter()
        """operators of an optimizer, by the innermost line"""

    def see(self, frame: FrameType, name: str, seconds: float, beside: bool) -> None:
        """An operator before the backward pass, called by a frame of the script's."""
        stack = stack_of(frame)
        self.calls[stack] += 1
        self.seconds[stack[0], beside][name] += seconds

    def see_afterwards(self, frame: FrameType, updates: bool) -> None:
        """One of the backward pass, or of an optimizer, which ``updates``."""
        stack = stack_of(frame)
        if stack:  # none of the script's is on that of autograd's own threads
            self.others.add(stack)
            self.updates[stack[0]] += updates

    def updating(self) -> str | None:
        """The line that most of an optimizer's operators come from."""
        for place, count in self.updates.most_common(1):
            return str(place) if count else None
        return None

    def busiest(self) -> Calls | None:
        """The innermost loop with half of the calls or more, else the function with most of them."""
        if not self.calls:
            return None
        functions: defaultdict[Function, Counter[Place]] = defaultdict(Counter)
        for (place, *_), count in self.calls.items():
            functions[place[:2]][place] += count
        (_, function), places = max(functions.items(), key=lambda pair: pair[1].total())
        loop = self._loop()
        if loop is not None:
            (_, function, _), places = loop
        busiest = max(places, key=lambda one: places[one])
        return Calls(function, str(busiest), places.total(), loop is not None)

    def _loop(self) -> tuple[Loop, Counter[Place]] | None:
        """That loop, and the calls by its lines."""
        trainings = self._trainings()
        loops: defaultdict[Loop, Counter[Place]] = defaultdict(Counter)
        depths: dict[Loop, int] = {}
        for stack, count in self.calls.items():
            for loop, (place, depth) in loops_of(stack).items():
                if loop not in trainings:
                    loops[loop][place] += count
                    depths[loop] = max(depth, depths.get(loop, 0))
        busy = [loop for loop in loops if 2 * loops[loop].total() >= self.calls.total()]
        inner = max(busy, key=lambda loop: (depths[loop], loop[2]), default=None)
        return None if inner is None else (inner, loops[inner])

    def _trainings(self) -> set[Loop]:
        """Loops that hold the backward pass or the optimizer; all of a step where neither is seen."""
        if self.others:
            return {loop for stack in self.others for loop in loops_of(stack)}
        stacks = [set(loops_of(stack)) for stack in self.calls]
        return stacks[0].intersection(*stacks)

    def dearest(self) -> Dearest | None:
        """The line whose own operators take longest; in the one function that takes most of the time, if any.

        Not a model's forward, of which any line may be as dear as it has to be, nor what holds the training.
        """
        taken = {at: sum(spent.values()) for at, spent in self.seconds.items()}
        whole_s = sum(taken.values())
        if not whole_s:
            return None
        functions: defaultdict[tuple[Function, bool], float] = defaultdict(float)
        trainings = {loop[:2] for loop in self._trainings()}
        for (place, beside), seconds in taken.items():
            function = place[:2]
            if place.function.rpartition(".")[2] not in OF_MODELS and function not in trainings:
                functions[function, beside] += seconds
        within = max(functions, key=lambda one: functions[one], default=None)
        if within is not None and functions[within] <= MOSTLY * whole_s:
            within = None
        lines = [at for at in taken if within in (None, (at[0][:2], at[1]))]
        place, beside = at = max(lines, key=lambda one: taken[one])
        spent = self.seconds[at]
        operator = max(spent, key=lambda one: spent[one])
        if within is None:
            return Dearest(str(place), operator, taken[at] / whole_s, beside)
        return Dearest(str(place), operator, functions[within] / whole_s, beside, place.function)


def stack_of(frame: FrameType) -> Stack:
    """The script's lines that are running, from ``frame`` outwards."""
    return tuple(
        Place(code.co_filename, code.co_qualname, each.f_lineno, code.co_firstlineno)
        for each in user_frames(frame)
        for code in (each.f_code,)
    )


def loops_of(stack: Stack) -> dict[Loop, tuple[Place, int]]:
    """The loops that a stack is in, each with the line in it that is running and how deep that is."""
    found: dict[Loop, tuple[Place, int]] = {}
    for depth, place in enumerate(reversed(stack)):
        if place.function.endswith(COMPREHENSIONS):
            continue  # of the line around it, whose own frame it is from Python 3.12 on
        begins = [loop.lineno for loop in loops_at(place.file, place.line)]
        for begin in (*begins, *comprehensions_at(place.file, place.line)):
            if begin >= place.first or place.function == "<module>":
                found[place.file, place.function, begin] = place, depth
    return found


@lru_cache(maxsize=1024)
def comprehensions_at(file: str, line: int) -> tuple[int, ...]:
    """Where those of a file begin that this line is inside of."""
    tree = parse(file)
    return tuple(
        node.lineno
        for node in (ast.walk(tree) if tree is not None else ())
        if isinstance(node, IN_LINE) and node.lineno <= line <= (node.end_lineno or line)
    )
