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

from outpace.plan.budget import duration
from outpace.plan.countdown import Countdown
from outpace.plan.crew import Crew, Orders, crew_of, steps_between
from outpace.plan.leave import follow, ways_out
from outpace.plan.longer import Longer
from outpace.plan.outlook import Outlook
from outpace.plan.pace import FAR, TRUSTED_BLOCKS
from outpace.plan.safety import is_sharded, write_checkpoint
from outpace.plan.schedule import RISE, Schedule, rate
from outpace.records.plan import Landed, Progress
from outpace.seams.host import Host, Step
from outpace.seams.loader import LoaderSeam
from outpace.seams.rate import RateSeam

TELL_S = 0.5
SAVE_AT = 0.8
"""share of the budget after which what was learnt is saved for the first time"""
EXIT_S = 1.05
"""for a process with torch to end once the script has"""
LAUNCHER_S = 1.0
"""more, for a launcher that waits for all of its ranks"""
MARGIN, MOST_MARGIN_S = 0.006, 30.0
"""of the budget, left free"""
LAST = 1.5
"""steps before the time is up that the rate is down: the last one begins between two and one before"""
LINE_AFTER = "a line after the loop, in the same function, lets it end at once"
VARY = 1.1
"""times that the last validation may take as long as those before"""


class Landing:
    """Listens to the host. ``land``: end the training in time; None: only tell when it ends.

    ``tell`` is given the progress twice a second, ``say`` what the user should read, with a hint.
    ``ranks``: processes that train together, of which the first decides for all.
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
        ranks: int = 1,
    ) -> None:
        self.host, self.countdown, self.land = host, countdown, land
        self.checkpoint, self.tell, self.say = checkpoint, tell, say
        self.ranks, self.orders = ranks, Orders()
        self.crew: Crew | None = None
        self.outlook = Outlook(host)
        self.pace = self.outlook.pace
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
        host.listeners.append(self.on_step)
        host.on_loss = self.keep_loss
        self.loader = host.seams.get("loader")
        self.rate = host.seams.get("rate")
        self.longer: Longer | None = None
        self.went_on = False
        if isinstance(self.loader, LoaderSeam) and land is not None and ranks == 1:
            self.longer = self.loader.longer = Longer(self.goes_on)
        if isinstance(self.rate, RateSeam) and land is not None:
            self.rate.change = self.changed_rate

    def keep_loss(self, samples: int, loss: Any) -> None:
        """The loss of the newest step."""
        self.loss = loss

    # --- when it ends --------------------------------------------------------------------------

    def on_step(self, step: Step) -> None:
        """A step ended, or a group of short ones."""
        self.outlook.note(step)
        now = self.countdown.elapsed()
        if now - self.told >= TELL_S:
            self.told = now
            self.look()
        if self.land is not None and not self.over:
            try:
                self.steer()
            except Exception:
                self.land = None
                if isinstance(self.rate, RateSeam):
                    self.rate.change = None  # nobody would end what goes down
                raise

    def look(self) -> None:
        """Tell how far it is, and whether it is late."""
        found, left = self.outlook.finish(), self.countdown.left()
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
                of=self.outlook.total(),
                loss=float(self.loss) if self.loss is not None else None,
                elapsed_s=self.countdown.elapsed(),
                left_s=left,
                finish_s=found,
                landing=self.began is not None,
            )
        )

    # --- ending it in time ---------------------------------------------------------------------

    def ending(self) -> float:
        """Seconds that are needed once no batch is given any more."""
        budget = self.countdown.elapsed() + self.countdown.left()
        validations = (self.outlook.epoch() is not None) + self.outlook.evaluates
        validating = VARY * validations * self.outlook.validation()
        saving = 2 * (self.saved_s or 0.0)  # ours, and the script's own
        slower = self.pace.slowness if self.pace.slowness > FAR else 1.0
        exit_s = slower * (EXIT_S + (LAUNCHER_S if self.ranks > 1 else 0.0))
        return exit_s + saving + validating + min(MOST_MARGIN_S, MARGIN * budget)

    def steer(self) -> None:
        """Begin to go down, save, or end, where it is time."""
        if self.ranks > 1:
            self.steer_together()
            return
        self.decide_to_go_down()
        if self.began is None:
            return
        self.save_early()
        if self.countdown.left() - self.ending() - self.until_next_chance() <= 0:
            self.end()

    def steer_together(self) -> None:
        """The same, as the first rank says."""
        step, end = self.host.steps, self.orders.end
        if end is not None and step >= end:
            self.end()
        elif step >= self.orders.then:
            self.crew = self.crew or crew_of()
            if self.crew is None:
                self.land = None
                self.say(
                    "the ranks have not met: the end is forecast, but not brought forward", None
                )
                return
            before, self.orders = self.orders, self.crew.meet(step, self.command)
            if before.share is None and self.orders.share is not None:
                self.rate_from_here()

    def command(self) -> Orders:
        """What all ranks do from this step on."""
        step, step_s = self.host.steps, max(1e-6, self.pace.recent_s)
        every = steps_between(step_s)
        self.decide_to_go_down()
        if self.began is None:
            return Orders(step, step + every)
        self.save_early()
        share, left = self.way_down(), int(self.training_left() / step_s)
        end = step + max(1, left) if left <= every else None
        slope = (1.0 - share) / max(1, left)
        assert self.began is not None
        late = self.began[0] > RISE
        return Orders(step, end or step + every, share, slope, end, late)

    def decide_to_go_down(self) -> None:
        """Where it would not end in time by itself."""
        late = self.countdown.left() - self.ending() <= 0
        if self.began is None and (late or self.must_go_down()):
            self.go_down()

    def save_early(self) -> None:
        """Once, some time before the end: to know how long it takes, and to have it."""
        left = max(0.0, self.countdown.left() - self.ending())
        used = self.countdown.elapsed() / (self.countdown.elapsed() + left)
        if self.saved_s is None and used >= SAVE_AT:
            self.save()

    def until_next_chance(self) -> float:
        """Seconds to the end of the next step, after which it can be ended too."""
        to_epochs_end = self.outlook.to_epochs_end()
        ends = to_epochs_end is not None and to_epochs_end <= self.host.group
        ends = ends and not (self.can_be_longer() and self.has_time_for_steps_only())
        # An epoch's validation comes between this step and the next.
        return self.pace.recent_s + (VARY * self.outlook.validation() if ends else 0.0)

    def training_left(self) -> float:
        """Seconds until the last step: less where the end would fall into an epoch's validation.

        That validation is then the last one, as there is no time for another after it: unless the
        epoch goes on until the time is up.
        """
        left = max(0.0, self.countdown.left() - self.ending())
        steps, epoch, step_s = (
            self.outlook.to_epochs_end(),
            self.outlook.epoch(),
            self.pace.step_s,
        )
        if steps is None or epoch is None or step_s is None or self.can_be_longer():
            return left
        training, validating = epoch * step_s, VARY * self.outlook.validation()
        # As if the running epoch had begun so long ago.
        into = left + (epoch - steps) * step_s
        return max(0.0, left - max(0.0, into % (training + validating) - training))

    def can_be_longer(self) -> bool:
        """Whether an epoch of this training can go on with the batches of the next."""
        return self.longer is not None and self.longer.possible

    def has_time_for_steps_only(self) -> bool:
        """Whether the time is up before an epoch's validation would be over, but not before a step."""
        if self.began is None or self.over or self.land is None:
            return False
        total, step_s = self.outlook.total(), self.pace.recent_s
        left = self.countdown.left() - self.ending()
        more = total is None or self.host.steps < total
        return more and LAST * step_s < left < VARY * self.outlook.validation() + step_s

    def goes_on(self) -> bool:
        """Whether an epoch that is over gets the batches of the next."""
        if not self.has_time_for_steps_only():
            return False
        if not self.went_on:
            self.went_on = True
            self.say(
                "the epoch goes on: its validation would not be over in time for another", None
            )
        return True

    def must_go_down(self) -> bool:
        """Whether the script would not end in time by itself."""
        if self.pace.blocks < TRUSTED_BLOCKS:
            return False
        found = self.outlook.finish()
        return found is None or found.estimate + self.ending() > self.countdown.left()

    def go_down(self) -> None:
        """From here on the rate goes down to zero."""
        elapsed, left = self.countdown.elapsed(), self.countdown.left()
        self.began = (elapsed / (elapsed + max(0.0, left)), self.host.steps)
        self.rate_from_here()
        lacking = "no optimizer of torch was met: only the end is brought forward"
        if self.outlook.total() is None:
            self.say("how long the script trains is not known: it is taken to go on", None)
        self.say(
            f"landing: the learning rate goes down to zero in the {duration(left)} that are left",
            None if self.host.optimizers else lacking,
        )

    def rate_from_here(self) -> None:
        """It goes down from what the script has it at now."""
        if isinstance(self.rate, RateSeam):
            self.rate.from_here()

    def way_down(self) -> float:
        """Share of the way down that is behind; never falling, by the clock and by the steps."""
        assert self.began is not None
        share, first = self.began
        elapsed = self.countdown.elapsed()
        used = elapsed / (elapsed + max(0.0, self.training_left() - LAST * self.pace.recent_s))
        by_clock = (used - share) / max(1e-9, 1.0 - share)
        total = self.outlook.total()
        by_steps = 0.0 if total is None else (self.host.steps - first) / max(1, total - first)
        self.share = min(1.0, max(self.share, by_clock, by_steps))
        return self.share

    def changed_rate(self, own: float, largest: float) -> float:
        """The rate of the next step, of the script's own and its largest."""
        down = self.orders.share_at(self.host.steps) if self.ranks > 1 else None
        if self.ranks == 1 and self.began is not None:
            down = self.way_down()
        if down is None:
            return own
        if self.over:
            down = 1.0
        if self.land == "scale":
            new = own * (1.0 - down)
        else:
            schedule: Schedule = self.land or "plateau"
            late = self.orders.late or (self.began is not None and self.began[0] > RISE)
            if schedule == "one-cycle" and late:
                down = RISE + (1.0 - RISE) * down  # too late for it to rise
            new = largest * rate(schedule, down)
        self.final_rate = new / largest if largest else 0.0
        return new

    def save(self) -> bool:
        """Save what was learnt; whether that could be done."""
        before = self.countdown.elapsed()
        optimizers = list(self.host.optimizers)
        problem = None if optimizers else "there is no optimizer of torch"
        if any(is_sharded(optimizer) for optimizer in optimizers):
            problem = "the model is shared out over the ranks"
        try:
            if problem is None:
                write_checkpoint(self.checkpoint, optimizers, self.host.steps)
        except Exception as error:
            problem = str(error)
        self.saved_s = self.countdown.elapsed() - before
        if problem is not None and self.over:
            self.say(f"no safety checkpoint was written: {problem}", None)
        return problem is None

    def end(self) -> None:
        """The time is up: no more batches, and out of the loops."""
        self.over = True
        leads = self.crew is None or self.crew.leads
        text = f"the time is up after {self.host.steps} steps"
        if self.final_rate is not None:
            text += f", the rate at {100 * self.final_rate:.1f} % of what it was"
        if leads and self.save():
            text += f"; what was learnt is in {self.checkpoint}"
        self.say(text, None)
        exits, last = ways_out(sys._getframe(1))
        if isinstance(self.loader, LoaderSeam):
            self.loader.dry = True
        if not (follow(exits, self.left_loops) and last):
            self.say(*self.why_it_goes_on(bool(exits)))

    def left_loops(self) -> None:
        """The script's own ending begins, in which loaders give all that they have."""
        if isinstance(self.loader, LoaderSeam):
            self.loader.dry = False

    def why_it_goes_on(self, loops: bool) -> tuple[str, str | None]:
        """What is told where the loop around the training could not be left."""
        if self.outlook.epoch() is None:
            return "the loop around the steps cannot be left: it goes on, at rate zero", LINE_AFTER
        what = "the loop around the epochs" if loops else "the library's loop"
        hint = LINE_AFTER if loops else "set it fewer epochs"
        return f"{what} cannot be left: each epoch gives one more batch, at rate zero", hint
