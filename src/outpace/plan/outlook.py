"""When a training that is running will end: its pace, its length, and what lies between its epochs."""

from __future__ import annotations

import sys

from outpace.measure.length import Loop, loops_around_step, total_steps
from outpace.plan.leave import evaluates_after
from outpace.plan.pace import Pace
from outpace.records.plan import Estimate
from outpace.seams.host import Host, Step
from outpace.seams.loader import LoaderSeam

FORWARD = 0.4
"""of a step's time, less that for input, that a batch of a validation takes, while none was seen"""


class Outlook:
    """What is known of a training by now; ``note`` is given its steps."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.pace = Pace()
        self.loops: list[Loop] = []
        self.before = 0
        """steps of earlier phases"""
        self.evaluates = False
        """the script seems to validate once more at its end"""
        self._drawing_s = self._seen_s = 0.0
        """of clean steps: for their batches, and in all"""
        self._loader = host.seams.get("loader")

    def note(self, step: Step) -> None:
        """A step ended, or a group of short ones."""
        self.pace.note(step.wall / 1e9, step.count, clean=step.clean)
        if step.clean:
            self._drawing_s += step.phases["input"] * step.count / 1e9
            self._seen_s += step.wall * step.count / 1e9
        total = self.total()
        if step.index >= 1 and (not self.loops or (total is not None and step.index >= total)):
            # Of the first loops, or of those that come after them: a script may train in phases.
            self.before = step.index if self.loops else 0
            self.loops = loops_around_step()
            self.evaluates = evaluates_after(sys._getframe(1))

    def total(self) -> int | None:
        """Steps of the whole run, where they can be known."""
        steps = total_steps(self.loops, self._batches(), self.host.micro_steps)
        return None if steps is None else self.before + steps

    def finish(self) -> Estimate | None:
        """Seconds from now to the end, where they can be known."""
        total = self.total()
        if total is None or self.pace.step_s is None:
            return None
        steps = max(0, total - self.host.steps)
        epoch = self.epoch()
        epochs = steps / epoch if epoch is not None else 0.0
        return self.pace.left(steps, epochs * self.validation())

    def epoch(self) -> int | None:
        """Steps of an epoch, where a loader feeds the training."""
        batches = self._batches()
        return None if batches is None else max(1, batches // max(1, self.host.micro_steps))

    def _batches(self) -> int | None:
        """Of an epoch, where a loader of known length feeds the training."""
        if not isinstance(self._loader, LoaderSeam):
            return None
        records = self._loader.records.values()
        return next((r.length for r in records if r.trains and r.length), None)

    def validation(self) -> float:
        """Seconds between two epochs: as seen, else by the batches of the loaders not used so far.

        Such a batch is drawn as those of training are, and goes through the model forward.
        """
        if self.pace.pause_s is not None:
            return self.pace.pause_s
        if not isinstance(self._loader, LoaderSeam) or self.epoch() is None:
            return 0.0
        others = [loader for loader, of in list(self._loader.records.items()) if not of.trains]
        sizes = [
            (self._loader.record_of(loader).length or 0) * (loader.batch_size or 1)
            for loader in others
        ]
        batch = max(1, self.host.batch_size * self.host.micro_steps)
        drawing = self._drawing_s / self._seen_s if self._seen_s else 0.0
        share = drawing + FORWARD * (1.0 - drawing)
        return share * (self.pace.step_s or 0.0) * sum(sizes) / batch

    def to_epochs_end(self) -> float | None:
        """Steps that are left of the running epoch, where a loader of known length feeds it."""
        if not isinstance(self._loader, LoaderSeam):
            return None
        left = [
            (record.length - record.given) / max(1, self.host.micro_steps)
            for record in self._loader.records.values()
            if record.trains and record.length
        ]
        return min(left, default=None)
