"""A training that is watched for its deadline, and, where that is asked, ended in time.

Nothing is changed while the forecast fits. Once it does not, the learning rate goes down from what
the script has it at, so that it reaches zero when the time is up; then the loaders give no more
batches and the loops around the step are left, so that what the script does at its end is done.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from outpace.measure.length import Loop, loops_around_step, total_steps
from outpace.plan.budget import duration
from outpace.plan.countdown import Countdown
from outpace.plan.leave import evaluates_after, follow, ways_out
from outpace.plan.pace import FAR, TRUSTED_BLOCKS, Pace
from outpace.plan.safety import write_checkpoint
from outpace.plan.schedule import RISE, Schedule, rate
from outpace.records.plan import Estimate, Landed, Progress
from outpace.seams.host import Host, Step
from outpace.seams.loader import LoaderSeam
from outpace.seams.rate import RateSeam

TELL_S = 0.5
SAVE_AT = 0.8
"""share of the budget after which what was learnt is saved for the first time"""
EXIT_S = 1.15
"""for a process with torch to end once the script has"""
MARGIN, MOST_MARGIN_S = 0.004, 30.0
"""of the budget, left free"""
PAUSES_VARY = 1.1
"""times that the last validation may take as long as those before"""
FORWARD = 0.4
"""of a step's time, less that for input, that a batch of a validation takes, while none was seen"""


class Landing:
    """Listens to the host. ``land``: end the training in time; None: only tell when it ends.

    ``tell`` is given the progress twice a second, ``say`` what the user should read, with a hint.
    """

    def __init__(
        self,
        host: Host,
        countdown: Countdown,
        *,
        land: Landed | None,
        checkpoint: Path,
        tell: Callable[[Progress], None],
        say: Callable[[str, str | None], None],
    ) -> None:
        self.host, self.countdown, self.land = host, countdown, land
        self.checkpoint, self.tell, self.say = checkpoint, tell, say
        self.pace = Pace()
        self.drawing_s = self.seen_s = 0.0
        """of clean steps: for their batches, and in all"""
        self.loops: list[Loop] = []
        self.told = float("-inf")
        self.late = False
        self.loss: Any = None
        self.began: tuple[float, int] | None = None
        """share of the budget and steps at which the rate began to go down"""
        self.share = 0.0
        """of the way down"""
        self.final_rate: float | None = None
        """of the newest step, as a share of the largest rate"""
        self.over = False
        self.saved_s: float | None = None
        """that it took to save what was learnt"""
        self.evaluates = False
        """the script seems to validate once more at its end"""
        host.listeners.append(self.on_step)
        host.on_loss = self.keep_loss
        self.loader = host.seams.get("loader")
        self.rate = host.seams.get("rate")
        if isinstance(self.rate, RateSeam) and land is not None:
            self.rate.change = self.changed_rate

    def keep_loss(self, samples: int, loss: Any) -> None:
        """The loss of the newest step."""
        self.loss = loss

    # --- when it ends --------------------------------------------------------------------------

    def on_step(self, step: Step) -> None:
        """A step ended, or a group of short ones."""
        self.pace.note(step.wall / 1e9, step.count, clean=step.clean)
        if step.clean:
            self.drawing_s += step.phases["input"] * step.count / 1e9
            self.seen_s += step.wall * step.count / 1e9
        if not self.loops and step.index >= 1:
            self.loops = loops_around_step()
            self.evaluates = evaluates_after(sys._getframe(1))
        now = self.countdown.elapsed()
        if now - self.told >= TELL_S:
            self.told = now
            self.look()
        if self.land is not None and not self.over:
            self.steer()

    def total(self) -> int | None:
        """Steps of the whole run, where they can be known."""
        length = None
        if isinstance(self.loader, LoaderSeam):
            known = [r.length for r in self.loader.records.values() if r.trains and r.length]
            length = known[0] if known else None
        return total_steps(self.loops, length, self.host.micro_steps)

    def finish(self) -> Estimate | None:
        """Seconds from now to the end, where they can be known."""
        total = self.total()
        if total is None or self.pace.step_s is None:
            return None
        if self.over:
            return Estimate(self.ending(), self.ending(), self.ending())
        steps = max(0, total - self.host.steps)
        epoch = self._epoch()
        epochs = steps / epoch if epoch is not None else 0.0
        return self.pace.left(steps, epochs * self._validation())

    def look(self) -> None:
        """Tell how far it is, and whether it is late."""
        found, left = self.finish(), self.countdown.left()
        if found is not None and self.pace.blocks >= TRUSTED_BLOCKS:
            if self.land is None and found.low > left and not self.late:
                self.late = True
                self.say(
                    f"at this pace it ends {duration(found.estimate - left)} after its time",
                    "--land ends it in time; `outpace plan` tells what else would",
                )
            elif self.late and found.high < left:
                self.late = False
                self.say("at this pace it ends in time after all", None)
        self.tell(
            Progress(
                steps=self.host.steps,
                of=self.total(),
                loss=float(self.loss) if self.loss is not None else None,
                elapsed_s=self.countdown.elapsed(),
                left_s=left,
                finish_s=found,
                landing=self.began is not None,
            )
        )

    def _epoch(self) -> int | None:
        """Steps of an epoch, where a loader feeds the training."""
        if not isinstance(self.loader, LoaderSeam):
            return None
        lengths = [r.length for r in self.loader.records.values() if r.trains and r.length]
        return max(1, lengths[0] // max(1, self.host.micro_steps)) if lengths else None

    def _validation(self) -> float:
        """Seconds between two epochs: as seen, else by the batches of the loaders not used so far.

        Such a batch is drawn as those of training are, and goes through the model forward.
        """
        if self.pace.pause_s is not None:
            return self.pace.pause_s
        if not isinstance(self.loader, LoaderSeam) or self._epoch() is None:
            return 0.0
        sizes = [
            record.length * (loader.batch_size or 1)
            for loader, record in self.loader.records.items()
            if record.length and not record.trains
        ]
        batch = max(1, self.host.batch_size * self.host.micro_steps)
        drawing = self.drawing_s / self.seen_s if self.seen_s else 0.0
        share = drawing + FORWARD * (1.0 - drawing)
        return share * (self.pace.step_s or 0.0) * sum(sizes) / batch

    # --- ending it in time ---------------------------------------------------------------------

    def ending(self) -> float:
        """Seconds that are needed once no batch is given any more."""
        budget = self.countdown.elapsed() + self.countdown.left()
        validations = (1 if self._epoch() is not None else 0) + (1 if self.evaluates else 0)
        validating = PAUSES_VARY * validations * self._validation()
        saving = 2 * (self.saved_s or 0.0)  # ours, and the script's own
        exit_s = EXIT_S * (self.pace.slowness if self.pace.slowness > FAR else 1.0)
        return exit_s + saving + validating + min(MOST_MARGIN_S, MARGIN * budget)

    def steer(self) -> None:
        """Begin to go down, save, or end, where it is time."""
        left = self.countdown.left() - self.ending()
        if self.began is None:
            if left <= 0 or self.must_go_down():
                self.go_down()
            return
        used = self.countdown.elapsed() / (self.countdown.elapsed() + max(0.0, left))
        if self.saved_s is None and used >= SAVE_AT:
            self.save()
        if left - self.until_next_chance() <= 0:
            self.end()

    def until_next_chance(self) -> float:
        """Seconds to the end of the next step, after which it can be ended too."""
        to_epochs_end = self._to_epochs_end()
        ends = to_epochs_end is not None and to_epochs_end <= self.host.group
        # An epoch's validation comes between this step and the next.
        return self.pace.recent_s + (PAUSES_VARY * self._validation() if ends else 0.0)

    def training_left(self) -> float:
        """Seconds until the last step: less where the end would fall into an epoch's validation.

        That validation is then the last one: there is no time for another after it.
        """
        left = max(0.0, self.countdown.left() - self.ending())
        steps, epoch = self._to_epochs_end(), self._epoch()
        if steps is None or epoch is None or self.pace.step_s is None:
            return left
        training, validating = epoch * self.pace.step_s, PAUSES_VARY * self._validation()
        # As if the running epoch had begun so long ago.
        into = left + (epoch - steps) * self.pace.step_s
        return max(0.0, left - max(0.0, into % (training + validating) - training))

    def _to_epochs_end(self) -> float | None:
        """Steps that are left of the running epoch, where a loader of known length feeds it."""
        if not isinstance(self.loader, LoaderSeam):
            return None
        left = [
            (record.length - record.given) / max(1, self.host.micro_steps)
            for record in self.loader.records.values()
            if record.trains and record.length
        ]
        return min(left, default=None)

    def must_go_down(self) -> bool:
        """Whether the script would not end in time by itself."""
        if self.pace.blocks < TRUSTED_BLOCKS:
            return False
        found = self.finish()
        return found is None or found.estimate + self.ending() > self.countdown.left()

    def go_down(self) -> None:
        """From here on the rate goes down to zero."""
        elapsed, left = self.countdown.elapsed(), self.countdown.left()
        self.began = (elapsed / (elapsed + max(0.0, left)), self.host.steps)
        lacking = "no optimizer of torch was met: only the end is brought forward"
        self.say(
            f"landing: the learning rate goes down to zero in the {duration(left)} that are left",
            None if self.host.optimizers else lacking,
        )

    def way_down(self) -> float:
        """Share of the way down that is behind; never falling, by the clock and by the steps."""
        assert self.began is not None
        share, first = self.began
        elapsed = self.countdown.elapsed()
        used = elapsed / (elapsed + self.training_left())
        by_clock = (used - share) / max(1e-9, 1.0 - share)
        total = self.total()
        by_steps = 0.0 if total is None else (self.host.steps - first) / max(1, total - first)
        self.share = min(1.0, max(self.share, by_clock, by_steps))
        return self.share

    def changed_rate(self, own: float, largest: float) -> float:
        """The rate of the next step, of the script's own and its largest."""
        if self.began is None:
            return own
        down = self.way_down()
        if self.land == "scale":
            new = own * (1.0 - down)
        else:
            schedule: Schedule = self.land or "linear"
            if schedule == "one-cycle" and self.began[0] > RISE:
                down = RISE + (1.0 - RISE) * down  # too late for it to rise
            new = largest * rate(schedule, down)
        self.final_rate = new / largest if largest else 0.0
        return new

    def save(self) -> None:
        """Save what was learnt."""
        before = self.countdown.elapsed()
        try:
            write_checkpoint(self.checkpoint, self.host.optimizers, self.host.steps)
        except Exception as error:
            self.say(f"the safety checkpoint could not be written: {error}", None)
        self.saved_s = self.countdown.elapsed() - before

    def end(self) -> None:
        """The time is up: no more batches, and out of the loops."""
        self.over = True
        if self.host.optimizers:
            self.save()
        left = 100 * self.final_rate if self.final_rate is not None else None
        at = f", the rate at {left:.1f} % of its largest" if left is not None else ""
        self.say(
            f"the time is up after {self.host.steps} steps{at}; what was learnt is in "
            f"{self.checkpoint}",
            None,
        )
        if isinstance(self.loader, LoaderSeam):
            self.loader.dry = True
        exits, last = ways_out(sys._getframe(1))
        if not follow(exits) or not last:
            self.say(
                "the loop around the epochs cannot be left: each gives one more batch, at rate zero",
                "a line after the loop lets it end at once",
            )
