"""Which of the script's lines the operators of a step come from: their most calls, and their longest.

Each operator is laid at the stack of the script's lines that called it. A loop of the script's that holds
all of a step's operators is the training's own; one that holds most of those before the backward pass and
not all of the step is told, as of a recurrent network written out, or of a loss that takes row by row.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from types import FrameType

from outpace.measure.length import loops_at
from outpace.records.compute import MOSTLY, Calls, Dearest
from outpace.seams.where import short, user_frames

Place = tuple[str, str, int]
"""file, function and line"""
Stack = tuple[Place, ...]
"""from the innermost line outwards"""
Loop = tuple[str, str, int]
"""file, function and the line that it begins at"""

OF_MODELS = ("forward", "__call__", "<module>")
COMPREHENSIONS = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")


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
        self.others.add(stack)
        if updates and stack:
            self.updates[stack[0]] += 1

    def updating(self) -> str | None:
        """The line that most of an optimizer's operators come from."""
        for (file, _, line), _ in self.updates.most_common(1):
            return f"{short(file)}:{line}"
        return None

    def busiest(self) -> Calls | None:
        """The innermost loop with half of the calls or more, else the function with most of them."""
        if not self.calls:
            return None
        functions: defaultdict[tuple[str, str], Counter[int]] = defaultdict(Counter)
        for ((file, function, line), *_), count in self.calls.items():
            functions[file, function][line] += count
        place, lines = max(functions.items(), key=lambda pair: pair[1].total())
        looped = self._loop()
        (file, function), lines = (place, lines) if looped is None else looped
        line = max(lines, key=lambda one: lines[one])
        return Calls(function, f"{short(file)}:{line}", lines.total(), looped is not None)

    def _loop(self) -> tuple[tuple[str, str], Counter[int]] | None:
        """The function of that loop, and the calls by its lines."""
        trainings = self._trainings()
        loops: defaultdict[Loop, Counter[int]] = defaultdict(Counter)
        depths: dict[Loop, int] = {}
        for stack, count in self.calls.items():
            for loop, (line, depth) in loops_of(stack).items():
                if loop not in trainings:
                    loops[loop][line] += count
                    depths[loop] = max(depth, depths.get(loop, 0))
        busy = [loop for loop in loops if 2 * loops[loop].total() >= self.calls.total()]
        inner = max(busy, key=lambda loop: (depths[loop], loop[2]), default=None)
        return None if inner is None else (inner[:2], loops[inner])

    def _trainings(self) -> set[Loop]:
        """Loops that hold the whole step."""
        stacks = [loops_of(stack) for stack in (*self.calls, *self.others)]
        return set(stacks[0]).intersection(*stacks)

    def dearest(self) -> Dearest | None:
        """The line whose own operators take longest; in the one function that takes most of the time, if any.

        Not a model's forward, of which any line may be as dear as it has to be, nor what holds the training.
        """
        taken = {at: sum(spent.values()) for at, spent in self.seconds.items()}
        whole_s = sum(taken.values())
        if not whole_s:
            return None
        functions: defaultdict[tuple[str, str], float] = defaultdict(float)
        trainings = {loop[:2] for loop in self._trainings()}
        for ((file, function, _), _), seconds in taken.items():
            if function.rpartition(".")[2] not in OF_MODELS and (file, function) not in trainings:
                functions[file, function] += seconds
        within = max(functions, key=lambda one: functions[one], default=None)
        if within is not None and functions[within] <= MOSTLY * whole_s:
            within = None
        lines = [at for at in taken if within in (None, at[0][:2])]
        place, beside = at = max(lines, key=lambda one: taken[one])
        spent = self.seconds[at]
        seconds, name = (taken[at], None) if within is None else (functions[within], within[1])
        operator = max(spent, key=lambda one: spent[one])
        where = f"{short(place[0])}:{place[2]}"
        return Dearest(where, operator, seconds / whole_s, beside, name)


def stack_of(frame: FrameType) -> Stack:
    """The script's lines that are running, from ``frame`` outwards."""
    return tuple(
        (each.f_code.co_filename, each.f_code.co_qualname, each.f_lineno)
        for each in user_frames(frame)
    )


def loops_of(stack: Stack) -> dict[Loop, tuple[int, int]]:
    """The loops that a stack is in, each with the line in it that is running and how deep that is."""
    found: dict[Loop, tuple[int, int]] = {}
    for depth, (file, function, line) in enumerate(reversed(stack)):
        begins = [loop.lineno for loop in loops_at(file, line)]
        if function.endswith(COMPREHENSIONS):
            begins.append(line)
        for begin in begins:
            found[file, function, begin] = line, depth
    return found
