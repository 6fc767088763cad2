"""How many steps a training has, by where it is in its loops.

``for step in range(10_000)`` tells by ``step`` how many turns are behind and how many are to come,
whatever a step gathers of them: gradients of several turns, or none where a turn is left early. Of
nested loops those count from the outermost on that tell where they are: a range, a list, either of
them under ``enumerate`` or a progress bar. A loop inside of these may be over anything: how many steps
it has is told by their turns that are over.
"""

from __future__ import annotations

import ast
import math
import sys
from collections.abc import Callable, Sequence
from types import CodeType, FrameType
from typing import Any, NamedTuple

from outpace.measure.expressions import Unknown, variable
from outpace.measure.heads import head_of
from outpace.measure.loops import (
    by_code,
    lines_within,
    loops_around,
    phases_around,
    training_frames,
)
from outpace.measure.reached import PLAIN, reached

CUT = 2
"""times the turns from one look to the next that a loop may be left before its end unnoticed"""
BLUR = 0.02
"""share of the steps by then that may always go by between the two looks that a turn began in"""


class Counted(NamedTuple):
    """A loop that tells where it is. ``turn``: in which its variable has a value, from 0 on."""

    code: CodeType
    lines: range
    variable: str
    turns: int
    turn: Callable[[Any], int | None]


class Turns:
    """Where a training is, of which ``note`` is told; ``before``: steps of earlier phases."""

    def __init__(self, before: int = 0) -> None:
        self.before = before
        self.loops: list[Counted] = []
        self._first: tuple[int, int] | None = None
        self._newest: tuple[int, int] | None = None
        """steps, and the turn in which they were there for the first time"""
        self._blur = math.inf
        """share of its steps by which that may be wrong"""
        self._seen = (0, 0)
        """steps and turn at the last look"""
        self._pace = 0.0
        """turns a step, at most, within one turn of the loops around the innermost"""

    def begin(self) -> None:
        """Find the loops around the calling step."""
        self.loops = loops_that_count(sys._getframe(1))

    def note(self, steps: int) -> None:
        """So many steps are over."""
        if not self.loops:
            return
        at = self._turn(sys._getframe(1))
        if at is None:
            return
        (looked, before), self._seen = self._seen, (steps, at)
        if self._first is None:
            self._first = self._newest = (steps, at)
        elif at < before:
            self.loops, self._newest = [], None  # the variable is another's
        elif at > before:
            self._note_newest(looked, before)
            self._look_for_early_ends(before, at, steps - looked)

    def _note_newest(self, looked: int, before: int) -> None:
        """A turn began between two looks; at very short steps those are many steps apart."""
        assert self._first is not None
        steps, at = self._seen
        between = steps - looked
        blur = between / (steps - self._first[0]) if between > 1 else 0.0
        if blur <= max(BLUR, self._blur):
            # The last of several turns began late.
            self._newest = (steps if at > before + 1 else steps - between // 2, at)
            self._blur = blur

    def _look_for_early_ends(self, before: int, at: int, steps: int) -> None:
        """Where the innermost of the loops is left before its end, those around it tell more."""
        of = self.loops[-1].turns
        if before // of == at // of:
            self._pace = max(self._pace, (at - before) / steps)
            return
        pace = self._pace or 1.0
        if len(self.loops) > 1 and of - 1 - before % of > CUT * max(1.0, pace * steps):
            assert self._first is not None
            assert self._newest is not None
            self.loops, self._pace = self.loops[:-1], 0.0
            self._first = _began(self._first, of, pace)
            self._newest = _began(self._newest, of, pace)
            if self._newest[1] == self._first[1]:  # by different steps, where turns were skipped
                self._newest, self._blur = self._first, math.inf
            self._seen = (self._seen[0], at // of)

    def _turn(self, frame: FrameType | None) -> int | None:
        """Of the innermost of the loops, counted through all of them."""
        frames = by_code(frame)
        return turn_of([(loop, frames.get(loop.code)) for loop in self.loops])

    def per_turn(self) -> float | None:
        """Steps of a turn of the innermost of the loops; None until one is over."""
        if self._first is None or self._newest is None or self._newest == self._first:
            return None
        (first, begun), (steps, turn) = self._first, self._newest
        each = (steps - first) / (turn - begun)
        # Of a turn of many steps some were there before the first look at it.
        return (steps - 1 - self.before) / (turn - begun) if each > 1 else each

    def total(self) -> int | None:
        """Steps to the end of the loops, those of earlier phases included; None until it is known."""
        each = self.per_turn()
        if each is None or self._newest is None:
            return None
        turns = math.prod(loop.turns for loop in self.loops)
        steps, turn = self._newest
        if each > 1:  # the newest turn has but begun
            return round(steps - 1 + (turns - turn) * each)
        return round(steps + (turns - turn - 1) * each)


def turn_of(loops: Sequence[tuple[Counted, FrameType | None]]) -> int | None:
    """Which turn runs of the innermost of nested loops, counted through all of them, by their frames."""
    turn = 0
    for loop, within in loops:
        if within is None or within.f_lineno not in loop.lines:
            return None
        try:
            index = loop.turn(variable(within, loop.variable))
        except Unknown:
            return None
        if index is None:
            return None
        turn = turn * loop.turns + index
    return turn


def _began(noted: tuple[int, int], of: int, pace: float) -> tuple[int, int]:
    """Steps and turn where a turn of the loop around one of so many turns began."""
    steps, turn = noted
    return max(1, steps - round(turn % of / pace)), turn // of


def loops_that_count(frame: FrameType | None) -> list[Counted]:
    """Those around a step, the outermost first, up to one that does not tell where it is."""
    found: list[Counted] = []
    phases = phases_around(frame)
    for each in reversed(training_frames(frame)):
        for loop in loops_around(each):
            if loop in phases:
                continue
            counted = counted_by(loop, each)
            if counted is None:
                return found
            found.append(counted)
    return found


def counted_by(loop: ast.For | ast.While, frame: FrameType) -> Counted | None:
    """How a loop tells where it is; None where it does not."""
    head = head_of(loop, frame)
    if isinstance(loop, ast.While) or head is None or (index := _in(head.items)) is None:
        return None
    turns = reached(loop, frame, head.name, head.items)
    if len(turns) < len(head.items):
        index = _of_those(index, turns)
    return Counted(frame.f_code, lines_within(loop), head.name, len(turns), index)


def _of_those(
    index: Callable[[Any], int | None], turns: Sequence[int]
) -> Callable[[Any], int | None]:
    """Turns counted without those that leave the step out."""
    places = {turn: place for place, turn in enumerate(turns)}

    def place(value: Any) -> int | None:
        turn = index(value)
        return None if turn is None else places.get(turn)

    return place


def _in(items: Sequence[Any]) -> Callable[[Any], int | None] | None:
    """What finds a turn by its item."""
    if isinstance(items, range):
        return lambda value: items.index(value) if type(value) is int and value in items else None
    # No other item is kept, nor compared by code of the user's: the loop keeps its list itself.
    places = {_told_by(item): index for index, item in enumerate(items)}
    return (lambda value: places.get(_told_by(value))) if len(places) == len(items) else None


def _told_by(item: Any) -> Any:
    """What tells an item from others."""
    return item if type(item) in PLAIN else id(item)
