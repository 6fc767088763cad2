"""Where a training is in its loops, and how many steps it has by them.

A script may train more than once: a search for a rate or a few steps to warm up, and then in earnest;
a head alone, and then the whole model. The steps of an outermost loop that it has left are behind;
from there on the loops that it is in now tell.
"""

from __future__ import annotations

from collections.abc import Callable

from outpace.measure.length import Loop, loops_around_step, total_steps
from outpace.measure.limits import Limits
from outpace.measure.loops import outermost_loop, place_of_step
from outpace.measure.turns import Turns
from outpace.seams.where import Place


class Course:
    """The loops around the steps, of which ``note`` is told."""

    def __init__(self) -> None:
        self.loops: list[Loop] = []
        self.turns = Turns()
        self.limits = Limits()
        self.before = 0
        """steps of earlier loops"""
        self.outermost: Place = ()
        """the loop that the newest step is in, and how it was come to"""
        self._again_at = 0
        """steps at which loops are looked for again, as long as none was found"""
        self._place: Place = ()
        """where the step was when they were read"""

    def note(self, steps: int, total: Callable[[], int | None] = lambda: None) -> bool:
        """So many steps are over; whether they are in other loops than those before.

        ``total`` gives the steps of the whole run, as far as is known by now: beyond them the loops
        inside of the outermost may be others.
        """
        outermost = outermost_loop()
        changed = bool(self.outermost) and outermost != self.outermost
        self.outermost = outermost
        if changed:
            self._read(steps, steps - 1)
            return True
        self.turns.note(steps)
        self.limits.note(steps)
        if steps < 2:
            return False
        if not self.loops:
            if steps >= self._again_at:  # not at each step, should there be none
                self._again_at = 2 * steps
                self._read(steps, self.before)
        elif (told := total()) is not None and steps > told and place_of_step() != self._place:
            self._read(steps, steps - 1)
            return True
        return False

    def _read(self, steps: int, before: int) -> None:
        self._place, self.before = place_of_step(), before
        self.loops = loops_around_step()
        self.turns = Turns(before)
        self.turns.begin()
        self.turns.note(steps)
        self.limits = Limits(before)
        self.limits.begin()
        self.limits.note(steps)

    def total(self, epoch: float | None, micro_steps: float) -> int | None:
        """Steps of the whole run, by those of an epoch and the batches of a step; None: unknown."""
        steps, limit = self.turns.total(), self.limits.total()
        if steps is None and not (limit is not None and self._may_go_on()):
            steps = total_steps(self.loops, epoch, micro_steps)
            steps = None if steps is None else self.before + steps
        return steps if limit is None else min(limit, steps or limit)

    def _may_go_on(self) -> bool:
        """Whether the outermost loop may turn through many epochs, as over ``cycle(loader)``."""
        outermost = self.loops[-1] if self.loops else None
        return outermost is not None and outermost.turns is None and not outermost.loader
