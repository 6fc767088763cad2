"""A script that trains once for each fold, seed or setting: each training has its share of the time.

A loop is over trainings where the optimizer is made anew at each of its turns: where it is around both that
line and the step's. Each has the same part of the time that is left when it begins: what one does not use
the others have, and the last has all of it.

Limits: nothing is shared where it is not known how often the loops turn, where an optimizer is made anew for
each epoch, or where the parts would be of a few steps, as those of many clients that learn in turns. That
a loop which counts an epoch's steps is not over trainings is seen once the next learns the same weights.
"""

from __future__ import annotations

import ast
import math
import sys
from types import FrameType
from typing import NamedTuple

from outpace.measure.length import Loop, loops_around_step, total_steps, turns
from outpace.measure.loops import loops_around, loops_over_parts, loops_with_frames
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


class Begins(NamedTuple):
    """How another optimizer begins to step."""

    goes_on: bool
    """with the weights of the one before, as those were left"""
    after_one_gone: bool
    """which is there no more"""


class Folds:
    """Which of several trainings runs; ``note`` is told of each step."""

    def __init__(self, host: Host, countdown: Countdown) -> None:
        self.host, self.countdown = host, countdown
        self.loops = 0
        """around the step, from the outermost on, of which the last is over trainings"""
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
        self._written: tuple[int, int] | None = None
        """steps, and how often the first weight was written to by then"""
        self._each = 0.0
        """times that a step writes to it, at most"""
        self._lines: Place = ()
        """of the loops over trainings"""
        self._made: Place = ()
        """where, in the functions of these loops, the first optimizer of the training that runs was made"""
        self._epochs: Place = ()
        """lines of loops of which each turn has an optimizer of its own, and goes on with the same weights"""

    def __str__(self) -> str:
        return f"training {self.at + 1} of {self.of}"

    def note(self) -> bool:
        """A step ended; whether another training began with it."""
        optimizer = self.host.main_optimizer()
        another = False
        if optimizer is not None and not self._taught.is_by(optimizer):
            same = self._taught.has_some_of(optimizer)
            begins = Begins(same and not self._written_between(), self._taught.optimizer is None)
            self._taught.note(optimizer)
            self._written, self._each = None, 0.0
            made = self.host.made.get(optimizer, ())
            another = self._look(sys._getframe(1), made, begins)
        self._note_written()
        self._newest = self.countdown.elapsed()
        return another

    def _note_written(self) -> None:
        version, before = self._taught.version, self._written
        if version is None:
            return
        self._written = self.host.steps, version
        if before is not None and self.host.steps > before[0]:
            each = (version - before[1]) / (self.host.steps - before[0])
            self._each = max(self._each, each)

    def _written_between(self) -> bool:
        """Whether weights were set anew since the newest step, as by ``load_state_dict``."""
        version, before = self._taught.version, self._written
        if version is None or before is None or not self._each:
            return True  # nobody can tell
        return version - before[1] > self._each * (self.host.steps - before[0])

    def _look(self, frame: FrameType | None, made: Place, begins: Begins) -> bool:
        """At the loops over trainings; whether it is another of them."""
        loops = loops_over_trainings(frame, made)
        lines = tuple((each.f_code, loop.lineno) for loop, each in loops)
        codes = {code for code, _ in lines}
        made = tuple((code, line) for code, line in made if code in codes)
        if self._lines and lines != self._lines and self._goes_on(frame, lines):
            return False  # another optimizer of the same training
        inside = loops_around_step()
        parts = loops_over_parts(frame)
        counts = [turns(loop, each).turns for loop, each in loops if loop not in parts]
        inside = inside[: len(inside) - len(counts)]
        of = math.prod(count or 0 for count in counts)
        if lines and lines == self._lines and begins.goes_on and len(inside) == 1:
            self._epochs = lines
        before = self._lines
        if of < 2 or not are_trainings(inside) or lines == self._epochs:
            self.loops, self.of, self.at, self._lines = 0, 1, 0, ()
            return bool(before)
        at = position([(loop, each) for loop, each in loops if loop not in parts])
        if at is None and before == lines:  # by those that were met
            others = begins.after_one_gone and not begins.goes_on
            at = min(self.at + (made == self._made or others), of - 1)
        at = at or 0
        another = bool(before) and (lines != before or at != self.at)
        if another or not before:
            self.began = self.countdown.elapsed() if self._newest is None else self._newest
            self.first, self._made = self.host.steps - 1, made
        self.loops, self.of, self.at, self.inside, self._lines = len(loops), of, at, inside, lines
        return another

    def _goes_on(self, frame: FrameType | None, lines: Place) -> bool:
        """Whether the training that began goes on, by an optimizer that was made in loops of other lines."""
        around = loops_with_frames(frame)[::-1]
        here = [(each.f_code, loop.lineno) for loop, each in around]
        if not lines:
            return self._lines[0] in here  # it was made before all trainings
        at = position(
            [found for found, line in zip(around, here, strict=True) if line in self._lines]
        )
        return set(self._lines) <= set(here) and at in (None, self.at)

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
