"""Watching a training run as it is: steps, fetches, memory, and how long it will be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from outpace.measure.course import Course
from outpace.measure.growth import Growth
from outpace.measure.ledger import WARM_UP
from outpace.measure.losses import Losses
from outpace.measure.recurring import Came
from outpace.measure.retained import Look, Retained, fills_up, find_retained, look
from outpace.measure.subjects import forget_epochs, steps_of_epoch, training_loader
from outpace.measure.trainings import Taught
from outpace.measure.validation import ValidationLosses
from outpace.records.ledger import NOW_AND_THEN
from outpace.seams.fetch import LOADERS, Fetches, FetchSeam, counted_as
from outpace.seams.host import Host, Step

KEEP = 4000
LOOK_AT = 3
LOOK_AGAIN_AT = 64
"""and at four times as many steps, and so on: a short script ends before its recording does"""
KEEP_AT = (0, 1, 2, 8, 64)
Totals = list[tuple[Fetches, Fetches]]
"""of each DataLoader's fetches: in the training process, and in its workers"""


class Watcher:
    """Listens to the host; ``recording`` while the steps run as the script is."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.recording = True
        self.steps: list[Step] = []
        self.first_epoch: list[Step] = []
        """these, where they do not stand for those of later epochs"""
        self.second_epoch: int | None = None
        """steps before it; None until it begins"""
        self.firsts: list[Step] = []
        """those of these that began an epoch"""
        self._epoch: int | None = None
        """of the last step"""
        self.outside: dict[str, Came] = {name: Came() for name in NOW_AND_THEN}
        self.elsewhere = [0, 0]
        """steps with nothing else in them, and nanoseconds of these that no seam explains"""
        self.growth = Growth()
        self.first_look: Look | None = None
        self.next_look = LOOK_AGAIN_AT
        self.retained: Retained | None = None
        self.fills = False
        """memory grows as something is filled that has a limit of its own"""
        self.course = Course()
        self.losses = Losses()
        self.validation = ValidationLosses(host)
        self.loss_until: int | None = None
        self.taught = Taught()
        self.fetch_begin: Totals | None = None
        self.fetch_end: Totals | None = None
        self.threads: int | None = None
        """that computed a step: a script may validate on fewer"""
        self.kept: list[object] = []
        """the loader and the model, so that they are there when evidence is written at the end"""
        self.kept_from, self.keeps = 0, list(KEEP_AT)
        """steps before the training that they are of, and after which of its own they are looked for again"""
        host.listeners.append(self.on_step)
        host.on_loss = self.losses.add

    def on_step(self, step: Step) -> None:
        """A step ended."""
        if self.keeps and step.index - self.kept_from >= self.keeps[0]:
            self.kept = [training_loader(self.host), self.host.main_root()]
            self.keeps = [at for at in self.keeps if at > step.index - self.kept_from]
        if step.index == 1:
            self.fetch_begin = self._fetches()
        begins = self._epoch is not None and self.host.epoch > self._epoch
        self._epoch = self.host.epoch
        if begins and self.second_epoch is None:
            self.second_epoch = step.index
        if self.course.note(step.index + 1):
            forget_epochs(self.host)
        if self.host.mingled:  # it is in every step
            self.outside = {name: Came() for name in NOW_AND_THEN}
        if self.host.mistaken:
            self.host.mistaken, self.outside["validation"] = False, Came()
            self.validation.forget()
        elif not step.clean:
            for name, came in self.outside.items():
                if step.phases[name]:
                    came.note(step.index + 1 - step.count, self._took(step, name))
        else:
            self.elsewhere[0] += step.count
            self.elsewhere[1] += step.count * step.phases["elsewhere"]
        if not self.recording:
            return
        self.threads = torch.get_num_threads()
        self._forget_other_training()
        if len(self.steps) < KEEP:
            self.steps.append(step)
            if begins and step.index >= WARM_UP:
                self.firsts.append(step)
        self.growth.feed(step.index)
        if step.index == LOOK_AT:
            self.first_look = _unless_raised(look)
        if step.index >= self.next_look:
            self.next_look *= 4
            self._look_for_retained()

    def _took(self, step: Step, name: str) -> int:
        """Nanoseconds of what came in a step; of a checkpoint also what is done around `torch.save`, as to
        have a disk write it: what no seam explains beyond that of other steps, where nothing else came.
        """
        took = step.phases[name]
        came = [each for each in NOW_AND_THEN if step.phases[each]]
        if came != ["checkpoint"] or not self.elsewhere[0]:
            return took
        usual = step.count * self.elsewhere[1] // self.elsewhere[0]
        return took + max(0, step.phases["elsewhere"] - usual)

    def _forget_other_training(self) -> None:
        """Losses of a model that is not trained any more, a teacher or a fold before, are another curve."""
        optimizer = self.host.main_optimizer()
        if optimizer is None or self.taught.is_by(optimizer):
            return
        if self.taught.has_none_of(optimizer):
            self.losses.forget()
            self.validation.forget()
            # What is of the other goes; what this one is fed by is not known as early.
            self.kept, self.kept_from, self.keeps = [], self.host.steps, list(KEEP_AT)
        self.taught.note(optimizer)

    def _look_for_retained(self) -> None:
        trend = self.growth.trend()
        if trend is not None and trend.grows:
            self.retained = _unless_raised(find_retained, self.first_look)
            self.fills = not self.retained and bool(_unless_raised(fills_up, self.first_look))

    def total_steps(self, micro_steps: int) -> int | None:
        """Steps of the whole run, of so many batches each; None where nothing tells."""
        loaded = training_loader(self.host)
        epoch = loaded[1].steps_of_epoch(micro_steps) if loaded is not None else None
        return self.course.total(epoch, micro_steps)

    def steps_of_epoch(self) -> float | None:
        """Steps that an epoch had, of those that are over."""
        return steps_of_epoch(self.host, self.course)

    def begin_anew(self) -> None:
        """Steps of the first epoch do not stand for those from here on."""
        until = self.second_epoch or 0
        self.first_epoch = [step for step in self.steps if step.index < until]
        self.steps, self.fetch_begin = [], self._fetches()

    def stop_recording(self) -> None:
        """Steps from here on are arms."""
        if self.recording:
            self.recording = False
            self._look_for_retained()
            self.fetch_end = self._fetches()
            self.loss_until = len(self.losses.samples)
            self.validation.end()

    def fetches(self, loader: int, *, workers: bool) -> Fetches | None:
        """What a DataLoader's fetching cost while recording."""
        begin, end = self.fetch_begin, self.fetch_end or self._fetches()
        if begin is None or end is None:
            return None
        at = counted_as(loader)
        one, other = begin[at][workers], end[at][workers]
        return Fetches(
            *(b - a for a, b in zip(vars(one).values(), vars(other).values(), strict=True))
        )

    def _fetches(self) -> Totals | None:
        seam = self.host.seam(FetchSeam)
        if seam is None:
            return None
        return [
            (seam.totals(i, workers=False), seam.totals(i, workers=True)) for i in range(LOADERS)
        ]


def _unless_raised(look_at: Callable[..., Any], *args: Any) -> Any:
    """What a look at the script's variables tells; None where its own classes raise in place of an answer."""
    try:
        return look_at(*args)
    except Exception:
        return None
