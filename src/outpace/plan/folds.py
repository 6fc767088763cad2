"""A script that trains once for each fold, seed or setting: each training has its share of the time.

A loop is over trainings where the optimizer is made anew at each of its turns: where it is around both that
line and the step's. Each has the same part of the time that is left when it begins: what one does not use
the others have, and the last has all of it.

Limits: nothing is shared where it is not known how often the loops turn, where an optimizer is made anew for
each epoch, or where the parts would be of a few steps, as those of many clients that learn in turns.
"""

from __future__ import annotations

import ast
import math
import sys
from types import FrameType
from typing import NamedTuple

from outpace.measure.length import Loop, loops_around, loops_around_step, total_steps, turns
from outpace.measure.trainings import Taught
from outpace.measure.turns import counted_by, turn_of
from outpace.plan.countdown import Countdown
from outpace.seams.host import Host
from outpace.seams.where import Place, user_frames


class Share(NamedTuple):
    """A training's part of the time."""

    began: float
    """seconds that were over then"""
    parts: int
    """that what was left then is divided into"""

    def ends(self, whole: float) -> float:
        """When it is over, of so many seconds in all."""
        return self.began + (whole - self.began) / self.parts


class Folds:
    """Which of several trainings runs; ``note`` is told of each step."""

    def __init__(self, host: Host, countdown: Countdown) -> None:
        self.host, self.countdown = host, countdown
        self.loops = 0
        """around the step, from the outermost on, that are over trainings"""
        self.of, self.at = 1, 0
        """trainings in all, and the one that runs, from 0 on"""
        self.inside: list[Loop] = []
        """of one training, the innermost first"""
        self.began = 0.0
        self.first = 0
        """steps before it"""
        self._newest: float | None = None
        """seconds that were over at the step before"""
        self._taught = Taught()
        self._lines: Place = ()
        """of the loops over trainings"""

    def __str__(self) -> str:
        return f"training {self.at + 1} of {self.of}"

    def note(self) -> bool:
        """A step ended; whether another training began with it."""
        optimizer = self.host.main_optimizer()
        another = False
        if optimizer is not None and not self._taught.is_by(optimizer):
            self._taught.note(optimizer)
            another = self._look(sys._getframe(1), self.host.made.get(optimizer, ()))
        self._newest = self.countdown.elapsed()
        return another

    def _look(self, frame: FrameType | None, made: Place) -> bool:
        """At the loops over trainings; whether it is another of them."""
        loops = loops_over_trainings(frame, made)
        inside = loops_around_step()
        inside = inside[: len(inside) - len(loops)]
        counts = [turns(loop, each).turns for loop, each in loops]
        of = math.prod(count or 0 for count in counts)
        if of < 2 or not are_trainings(inside):
            self.loops, self.of, self.at, self._lines = 0, 1, 0, ()
            return False
        lines = tuple((each.f_code, loop.lineno) for loop, each in loops)
        another = lines == self._lines
        at = position(loops)
        if at is None:  # by those that were met
            at = min(self.at + 1, of - 1) if another else 0
        another = another and at != self.at
        if another or not self._lines:
            self.began = self.countdown.elapsed() if self._newest is None else self._newest
            self.first = self.host.steps - 1
        self.loops, self.of, self.at, self.inside, self._lines = len(loops), of, at, inside, lines
        return another

    def share(self) -> Share | None:
        """Of the training that runs; None where it is the only one."""
        return Share(self.began, self.of - self.at) if self.of > 1 else None

    def total(self, epoch: float | None, micro_steps: float) -> int | None:
        """Steps of all trainings up to the end of this one, as `Course.total` has it."""
        steps = total_steps(self.inside, epoch, micro_steps)
        return None if steps is None else self.first + steps


def loops_over_trainings(
    frame: FrameType | None, made: Place
) -> list[tuple[ast.For | ast.While, FrameType]]:
    """The loops around a step in which its optimizer was made, the outermost first, and their frames."""
    found = []
    for each, (code, line) in zip(reversed(list(user_frames(frame))), reversed(made), strict=False):
        if each.f_code is not code:
            break
        within = [loop for loop in loops_around(each) if line in lines_of_body(loop)]
        found += [(loop, each) for loop in within]
        if each.f_lineno != line:
            break
    return found


def lines_of_body(loop: ast.For | ast.While) -> range:
    """Those that run at each turn."""
    return range(loop.body[0].lineno, (loop.end_lineno or loop.lineno) + 1)


def are_trainings(inside: list[Loop]) -> bool:
    """Whether loops are a training's, of epochs or of steps, and not one epoch's over its batches."""
    return len(inside) > 1 or (bool(inside) and (inside[0].over_range or inside[0].while_))


def position(loops: list[tuple[ast.For | ast.While, FrameType]]) -> int | None:
    """Which of all turns of nested loops runs; None where one does not tell."""
    found = [(counted, each) for loop, each in loops if (counted := counted_by(loop, each))]
    return turn_of(found) if len(found) == len(loops) else None
