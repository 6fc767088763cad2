"""When a training that is running will end: its pace, its length, and what lies between its epochs."""

from __future__ import annotations

import sys

from outpace.measure.course import Course
from outpace.measure.libraries import library_judges
from outpace.measure.subjects import forget_epochs, validation_on_others
from outpace.plan.leave import evaluates_after
from outpace.plan.pace import Cycle, Pace
from outpace.records.plan import Estimate
from outpace.seams.host import Host, Step
from outpace.seams.loader import LoaderSeam
from outpace.seams.loader_record import Record

BEYOND = 1.02
"""times its length that a training goes on for before its length is no longer believed"""
WITHIN = 0.9
"""of an epoch's steps, from one pause to the next, up to which it is none of an epoch's end"""
SOON = 4
"""steps after which it is told whether most are nothing but steps"""


class Outlook:
    """What is known of a training by now; ``note`` is given its steps."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.pace = Pace()
        self.course = Course()
        self.endless = False
        """the loops turn more often than was known, as over a generator without end"""
        self.evaluates = False
        """the script seems to validate once more at its end"""
        self._within = self._at_ends = 0
        """pauses in the midst of epochs, and where one begins"""
        self.validated = False
        """a validation came before the newest step, which begins an epoch"""
        self._drawing_s = self._seen_s = 0.0
        """of clean steps: for their batches, and in all"""
        self._batches = self._steps = 0
        """of clean steps: a step at an epoch's begin may be of more batches than others"""
        self._noted = self._clean = 0
        self._loader = host.seam(LoaderSeam)
        self.judged_by_library = False
        """the library whose loop is around the steps validates once more where it is asked to end"""

    def note(self, step: Step, stood_s: float = 0.0, waited_s: float = 0.0) -> None:
        """A step ended, or a group of short ones; the process stood still in it for so long.

        ``waited_s``: for files that memory has from now on. A first validation without them is like
        those that follow.
        """
        self._noted += 1
        self._clean += step.clean
        seconds = step.wall / 1e9
        if not (step.clean or self.mingled):
            seconds -= min(seconds, waited_s / step.count)
            # For a shape that was not met before, and so once, as `outpace plan` has it.
            if step.phases["compiling"]:
                seconds = min(seconds, self.pace.recent_s or seconds)
        if stood_s < seconds * step.count:  # else it stood still before its first step
            seconds -= stood_s / step.count
        before, begins = self.pace.paused, not step.clean and self._begins_epoch(step)
        self.pace.note(seconds, step.count, clean=step.clean or self.mingled, begins=begins)
        self.validated = begins and self.pace.paused > before
        if self.pace.paused and not before:  # by now it is known what validates
            self.evaluates = evaluates_after(sys._getframe(1), self.host.judging)
        if self.pace.paused > before:
            self._at_ends += begins
            self._within += not begins
        if step.clean and not stood_s:
            self._drawing_s += step.phases["input"] * step.count / 1e9
            self._seen_s += step.wall * step.count / 1e9
            self._batches += step.micro_steps * step.count
            self._steps += step.count
        self._look_around(step.index + 1)

    def _begins_epoch(self, step: Step) -> bool:
        record = self._record()
        if record is None:
            return False
        # A batch may be drawn before the one that is learnt from.
        begun = record.begun is not None and self.host.steps - record.begun <= step.count
        return begun or record.given <= step.count * max(1, step.micro_steps)

    @property
    def only_within(self) -> bool:
        """Whether pauses come in the midst of epochs, and none came with the end of one.

        Of which one has to be over, unless the one loop around the steps counts these.
        """
        record, loops = self._record(), self.course.loops
        counts = len(loops) == 1 and (loops[0].while_ or loops[0].over_range)
        over = record is not None and record.stepped > 0
        return (over or counts) and self._within > 0 and not self._at_ends

    def _look_around(self, steps: int) -> None:
        """At the loops, of which others may come: a script may train in phases."""
        known = bool(self.course.loops)
        other = self.course.note(steps, self.total)
        if other:
            self.endless = False
            forget_epochs(self.host)
        if other or not known:
            self.evaluates = evaluates_after(sys._getframe(1), self.host.judging)
            self.judged_by_library = library_judges()
        elif (total := self.total()) is not None and steps > 1 + BEYOND * total:
            self.endless = True

    @property
    def mingled(self) -> bool:
        """Whether most steps have something else in them, as where an epoch is one step."""
        return self.host.mingled or (self._noted >= SOON and 2 * self._clean < self._noted)

    def total(self) -> int | None:
        """Steps of the whole run, where they can be known."""
        if self.endless:
            return None
        return self.course.total(self.epoch(), self.micro_steps)

    @property
    def micro_steps(self) -> float:
        """Batches of a step."""
        return self._batches / self._steps if self._steps else self.host.micro_steps

    def finish(self) -> Estimate | None:
        """Seconds from now to the end, where they can be known."""
        return self.finish_of(self.total())

    def finish_of(self, total: int | None) -> Estimate | None:
        """The same to the end of so many steps, those behind included."""
        if total is None or self.pace.step_s is None:
            return None
        steps = max(0, total - self.host.steps)
        epoch = self.epoch()
        epochs = steps / epoch if epoch is not None and not self.mingled else 0.0
        return self.pace.left(steps, epochs * self.validation())

    def epoch(self) -> float | None:
        """Steps of an epoch, where a loader feeds the training."""
        record = self._record()
        return None if record is None else record.steps_of_epoch(self.micro_steps)

    def drawn(self) -> tuple[int, int] | None:
        """Batches given of the epoch that runs, and all of it; None between two, or where it is not known."""
        record = self._record()
        if record is None or record.length is None or not 0 < record.given < record.length:
            return None
        return record.given, record.length

    def _record(self) -> Record | None:
        """Of the loader that feeds the training now."""
        newest = self.host.drawn.learnt_from
        if newest is not None and newest.trains:
            return newest
        if self._loader is None:
            return None
        return next((each for each in list(self._loader.records.values()) if each.trains), None)

    def validation(self) -> float:
        """Seconds between two epochs: as seen, else by the batches of the loaders not used so far.

        Such a batch is drawn as those of training are, and goes through the model forward. What was seen
        may have been short: it is one where nothing is left to judge by that was not used.
        """
        seen, short = self.pace.pause_s, self.pace.short_end_s
        if seen is None and short is not None and not self._on_others(untouched=True):
            seen = short
        if seen is not None and seen.low == seen.high:
            return seen.low
        by_batches = 0.0 if self.epoch() is None else self._on_others(untouched=False)
        if seen is None:
            return by_batches
        return seen.nearest(by_batches) if by_batches else seen.middle

    def untouched(self) -> float:
        """Seconds to judge by the loaders that nothing was drawn from yet, once validations were seen."""
        return self._on_others(untouched=True) if self.pace.paused else 0.0

    def _on_others(self, *, untouched: bool) -> float:
        batch = self.host.batch_size * self.micro_steps
        drawing = self._drawing_s / self._seen_s if self._seen_s else 0.0
        return validation_on_others(
            self.host, self.pace.usual_s, drawing, batch, untouched=untouched
        )

    def to_epochs_end(self) -> float | None:
        """Steps that are left of the running epoch, by its loader's length or by the epochs before."""
        record = self._record()
        if record is None:
            return None
        left = []
        if record.length:
            left.append((record.length - record.given) / max(1.0, self.micro_steps))
        if record.stepped and record.begun is not None:  # those before may have been left early
            sooner = record.steps / record.stepped - (self.host.steps - record.begun)
            left += [sooner] if sooner >= 0 else []
        return min(left, default=None)

    def cycle(self) -> Cycle | None:
        """Of pauses in the midst of epochs, or of a training without any."""
        found, epoch = self.pace.cycle, self.epoch()
        if found is None or (epoch is not None and found.every > WITHIN * epoch):
            return None
        return found
