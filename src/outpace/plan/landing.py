"""A training that is watched for its deadline, and, where that is asked, ended in time.

Nothing is changed while the forecast fits. Once it does not, the learning rate goes down from what
the script has it at, so that it reaches zero when the time is up; then the loaders give no more
batches and the loops around the step are left, so that what the script does at its end is done. Of
several trainings, one for each fold, say, each is ended so with its share of the time.
The plateau before its fall is the script's own schedule; where there is no forecast, the script may end
by itself before that.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from outpace.measure.libraries import library_ends
from outpace.plan.budget import duration
from outpace.plan.countdown import Countdown
from outpace.plan.crew import NEVER, Crew, Orders, crew_of, rank_among_several, steps_between
from outpace.plan.cut_short import cut_short
from outpace.plan.descent import Descent
from outpace.plan.folds import Folds
from outpace.plan.leave import Exits, follow, loops_of, saves, saves_last_only, ways_out
from outpace.plan.longer import Longer
from outpace.plan.newest_loss import NewestLoss
from outpace.plan.no_items import starts_again
from outpace.plan.outlook import Outlook
from outpace.plan.pace import TRUSTED_BLOCKS
from outpace.plan.safety import Saved, bytes_learnt, is_sharded, write_checkpoint
from outpace.plan.schedule import FALL
from outpace.plan.time_left import EXIT_S, TimeLeft
from outpace.records.plan import Landed, Progress
from outpace.seams.host import Host, Step
from outpace.seams.loader import LoaderSeam
from outpace.seams.rate import RateSeam, finds_its_rate

TELL_S = 0.5
SURE_AT = 0.5
"""share of the budget up to which the rate goes down only where the script is sure to be late"""
FAR_TOO_LONG = 3.0
"""times the time that the script would take for it to be told by one block"""
SAVE_AT = 0.8
"""share of the budget after which what was learnt is saved for the first time"""
LOOK_S = 10.0
"""that are left at least where the last of several trainings looks ahead once more"""
DISK_BYTES_PER_S = 100e6
"""that a checkpoint is written with at the least: a hard disk, or a folder over a network"""
LAST = 1.5
"""steps before the time is up that the rate is down: the last one begins between two and one before"""
FEWEST_STEPS = 20
"""that each of several trainings has time for, with its validation, where the time is shared"""
LINE_AFTER = "a line after the loop, as far indented as it is, lets it end at once"


class Landing:
    """Listens to the host. ``land``: end the training in time; None: only tell when it ends.

    ``tell`` is given the progress twice a second, ``say`` what the user should read, with a hint.
    ``ranks``: processes that train together, of which the first decides for all. ``stood_still``:
    seconds that this process stood still since it was last asked. ``first_reads``: that it waited for
    files which memory has from then on. ``to_end``: that the process would take to end now.
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
        stood_still: Callable[[], float] = lambda: 0.0,
        first_reads: Callable[[], float] = lambda: 0.0,
        to_end: Callable[[], float] = lambda: EXIT_S,
    ) -> None:
        self.host, self.countdown, self.land = host, countdown, land
        self.stood_still, self.first_reads, self.to_end = stood_still, first_reads, to_end
        self.checkpoint, self.tell, self.say = checkpoint, tell, say
        self.ranks, self.orders = ranks, Orders()
        self.crew: Crew | None = None
        self.outlook = Outlook(host)
        self.pace = self.outlook.pace
        self.time = TimeLeft(countdown, self.outlook, ranks)
        self.folds = Folds(host, countdown)
        self.told = float("-inf")
        self.one_ended = False
        """one of several trainings was ended, as its share of the time was up"""
        self.looked_ahead = False
        """what was learnt was saved some time before the end"""
        self.saved_at: int | None = None
        """steps that were behind when what was learnt was saved last"""
        self.left_out: tuple[str, ...] = ()
        """classes whose state it is without"""
        self.late = self.waits = False
        """the forecast is; and: there is none, so that the script goes on at its own rate"""
        self.loss = NewestLoss()
        self.descent = Descent(land or "plateau")
        self.gave_up = False
        """it was to be ended in time, and cannot be"""
        self.over = self.left = False
        """no more batches; and the loops were left"""
        self.inner_only = False
        """loops around the step can be left, but not the outermost, which turns again"""
        host.listeners.append(self.on_step)
        host.on_loss = self.loss.keep
        self.loader = host.seam(LoaderSeam)
        self.rate = host.seam(RateSeam)
        self.longer: Longer | None = None
        self.went_on = False
        if self.loader is not None and land is not None and ranks == 1:
            self.longer = self.loader.longer = Longer(self.goes_on)
        if self.rate is not None and land is not None:
            self.rate.change, self.rate.wanted = self.changed_rate, self.changes_rates

    # --- when it ends --------------------------------------------------------------------------

    def on_step(self, step: Step) -> None:
        """A step ended, or a group of short ones."""
        waited_s = 0.0 if self.pace.paused else self.first_reads()
        self.outlook.note(step, self.stood_s(), waited_s)
        try:
            self.note_training()
            self.look_and_steer()
        finally:
            self.stood_s()  # what goes on here is of no step

    def note_training(self) -> None:
        """Of several the one that runs has its share of the time, where the one before had."""
        if self.land is None or self.ranks > 1:
            return
        if self.host.guard("folds", self.folds.note) and self.time.share is not None:
            self.time.share = None
            # How long all are cannot be told by those that were ended.
            if self.one_ended or not self.fits_again():
                self.time.share = self.folds.share()
            self.begin_anew()

    def stood_s(self) -> float:
        """Seconds that the process stood still since this was last asked, which is told."""
        seconds = self.stood_still()
        if seconds:
            self.say(
                f"the process stood still for {duration(seconds)}, which counts for the deadline, "
                "but not for how long steps and validations take",
                None,
            )
        return seconds

    def look_and_steer(self) -> None:
        """Tell how far it is, and bring it to its end, where it is time for that."""
        now = self.countdown.elapsed()
        if now - self.told >= TELL_S:
            self.told = now
            self.host.guard("progress", self.look)
        if self.land is not None:
            try:
                if not self.over:
                    self.steer()
                elif self.left:
                    self.leave()  # the script begins to train once more
                elif self.inner_only and sys.gettrace() is None:
                    follow(self.ways_out()[0], self.left_loops)
            except Exception as error:
                self.host.fail("landing", error)
                self.give_up()

    def give_up(self) -> None:
        """Only forecast from here on, the rate as the script has it: nobody would end what goes down."""
        self.land = None
        self.gave_up = True
        if self.rate is not None:
            self.rate.change = None
        if self.crew is not None:
            self.crew.give_up()

    def look(self) -> None:
        """Tell how far it is, and whether it is late."""
        found, left = self.time.finish(), self.countdown.left()
        if found is not None and self.pace.blocks >= TRUSTED_BLOCKS:
            if self.land is None and found.low > left and not self.late:
                self.late = True
                self.say(
                    f"at this pace it ends {duration(found.estimate - left)} after its time",
                    "`outpace plan` tells what would end it in time"
                    if self.gave_up
                    else "--land ends it in time; `outpace plan` tells what else would",
                )
            elif self.late and found.high < left:
                self.late = False
                self.say("at this pace it ends in time after all", None)
        self.tell(
            Progress(
                steps=self.host.steps,
                of=self.outlook.total(),
                loss=self.loss.read(),
                elapsed_s=self.countdown.elapsed(),
                left_s=left,
                finish_s=found,
                landing=self.land is not None and self.descent.began is not None,
            )
        )

    # --- ending it in time ---------------------------------------------------------------------

    def steer(self) -> None:
        """Begin to go down, save, or end, where it is time."""
        if self.ranks > 1:
            self.steer_together()
            return
        rank = rank_among_several()
        if rank is not None:  # each by its own clock, they would wait for each other for ever
            self.give_up()
            if rank == 0:
                self.say(
                    "several processes train together and were not announced: the end is forecast, but "
                    "not brought forward",
                    "start them with torchrun: outpace run --land ... -- torchrun ... train.py",
                )
            return
        self.decide_to_go_down()
        if self.descent.began is None:
            return
        self.save_early()
        if not self.has_time_for_a_step():
            self.end()

    def steer_together(self) -> None:
        """The same, as the first rank says."""
        step = self.host.steps
        if self.orders.end is None and step >= self.orders.then:
            self.crew = self.crew or crew_of()
            if self.crew is None:
                self.give_up()
                self.say(
                    "the ranks have not met: the end is forecast, but not brought forward", None
                )
                return
            before, self.orders = self.orders, self.crew.meet(step, self.command)
            if self.orders.then == NEVER:
                self.give_up()
                self.say(
                    "a rank has given up landing: the end is forecast, but not brought forward",
                    None,
                )
                return
            if before.share is None and self.orders.share is not None:
                self.rate_from_here()
            # Only now, as the others wait for the orders.
            if self.descent.began is not None and self.orders.end is None:
                self.save_early()
        if self.orders.end is not None and step >= self.orders.end:
            self.end()

    def command(self) -> Orders:
        """What all ranks do from this step on."""
        step, step_s = self.host.steps, max(1e-6, self.pace.recent_s)
        every = steps_between(step_s) if self.pace.recent_s else 1
        self.decide_to_go_down()
        if self.descent.began is None:
            return Orders(step, step + every)
        share, left = self.way_down(), int(self.until_last_step() / step_s)
        end = step + left if left <= every else None
        slope = (1.0 - share) / max(1, left)
        late, falls = self.descent.late, self.descent.falls
        return Orders(step, step + every, share, slope, end, late, falls)

    def decide_to_go_down(self) -> None:
        """Where it would not end in time by itself; taken back where it would, before a rate was changed."""
        if self.descent.began is None:
            if self.time.for_steps() <= 0 or self.must_go_down():
                self.go_down()
        elif not self.descent.changed and self.fits_again():
            self.descent = Descent(self.descent.land)
            self.say("it fits again: the rate is left alone", None)

    def save_early(self) -> None:
        """Once, some time before the end: to have what was learnt, and to know how long that takes and the
        process's end will.
        """
        if self.time.shared:
            return  # there is little time, and that is not the end
        left = max(0.0, self.time.for_steps())
        used = self.time.elapsed() / (self.time.elapsed() + left)
        soon = (
            self.time.saved_s is not None and left < LOOK_S
        )  # a training before it has told as much
        if not self.looked_ahead and used >= SAVE_AT and not soon:
            self.looked_ahead = True
            self.stood_s()
            exit_s = self.to_end()
            if not self.stood_s():
                self.time.exit_s = exit_s
            self.save()

    def has_time_for_a_step(self) -> bool:
        """Whether the next step would be over in time."""
        goes_on = self.can_be_longer() and self.has_time_for_steps_only()
        return self.time.for_steps() > self.time.until_next_chance(goes_on=goes_on)

    def until_last_step(self) -> float:
        """Seconds."""
        return self.time.until_last_step(longer=self.can_be_longer())

    def can_be_longer(self) -> bool:
        """Whether an epoch of this training can go on with the batches of the next."""
        return self.longer is not None and self.longer.possible

    def has_time_for_steps_only(self) -> bool:
        """Whether the time is up before an epoch's validation would be over, but not before a step."""
        if self.descent.began is None or self.over or self.land is None:
            return False
        total, step_s = self.total(), self.pace.recent_s
        more = total is None or self.host.steps < total
        return more and LAST * step_s < self.time.for_steps() < self.time.validating() + step_s

    def goes_on(self) -> bool:
        """Whether an epoch that is over gets the batches of the next."""
        if not self.has_time_for_steps_only():
            return False
        if not self.went_on:
            self.went_on = True
            divided = self.longer is not None and self.longer.divided
            self.say(
                "the epoch goes on: its validation would not be over in time for another",
                "this epoch has more batches than len(loader): what the script divides by that is too large"
                if divided
                else None,
            )
        return True

    def must_go_down(self) -> bool:
        """Whether the script would not end in time by itself."""
        for_steps, elapsed = self.time.for_steps(), self.time.elapsed()
        found = self.outlook.finish_of(self.total())
        warm = self.pace.blocks > 0 and not self.pace.warming
        if found is None and warm and self.folds.of > 1:
            return not self.may_wait()  # its share is soon over
        if self.pace.blocks < TRUSTED_BLOCKS:  # too early to tell of more than the next step
            far = warm and found is not None and found.low > FAR_TOO_LONG * self.time.for_epochs()
            return bool(far) or not self.has_time_for_a_step()
        if found is None:
            return not self.may_wait()
        if self.waits:
            self.waits = False
            self.say(f"how long the script trains is known by now: {self.total():,} steps", None)
        # A changed rate is not taken back, and early on a stall looks as if it came again and again.
        early = elapsed <= SURE_AT * (elapsed + max(0.0, for_steps))
        return (found.low if early else found.estimate) > self.time.for_epochs()

    def fits_again(self) -> bool:
        """Whether the script surely ends in time by itself."""
        found = self.outlook.finish_of(self.total())
        if found is None or self.pace.blocks < TRUSTED_BLOCKS or self.time.for_steps() <= 0:
            return False
        return found.high < self.time.for_epochs()

    def may_wait(self) -> bool:
        """Whether a script of unknown length goes on as it is: on a plateau, until it is to fall."""
        self.share_out()
        if self.descent.land != "plateau" or not self.has_time_for_a_step():
            return False
        if not self.waits:
            self.waits = True
            self.say(
                "how long the script trains is not known: its learning rate is its own until the "
                f"last {100 * FALL:.0f} % of the time",
                None,
            )
        elapsed = self.time.elapsed()
        return elapsed < (1.0 - FALL) * (elapsed + self.time.for_steps())

    def total(self) -> int | None:
        """Steps of what is to end in time: the whole run, or the training that has a share of the time."""
        if self.time.share is None:
            return self.outlook.total()
        return self.folds.total(self.outlook.epoch(), self.outlook.micro_steps)

    def share_out(self) -> None:
        """Give the training that runs its part of the time, where others come after it."""
        if self.time.share is None:
            self.time.share = self.folds.share()
            fewest = FEWEST_STEPS * self.pace.recent_s + self.time.validating()
            if self.time.elapsed() + self.time.left() < fewest:
                self.time.share = None

    def go_down(self) -> None:
        """From here on the rate goes down to zero."""
        self.share_out()
        left = max(0.0, self.time.left())
        self.descent.began = (self.used(), self.host.steps)
        self.rate_from_here()
        self.descent.falls = self.waits and self.total() is None
        if self.total() is None and not self.waits:
            self.say("how long the script trains is not known: it is taken to go on", None)
        optimizers = list(self.host.optimizers)
        own = sorted({type(each).__name__ for each in optimizers if finds_its_rate(each)})
        time = f"the {duration(left)} that are left"
        if self.time.shared:
            time += f" of the share of {self.folds}"
        if not all(finds_its_rate(each) for each in optimizers):
            hint = f"{', '.join(own)} finds its rate itself, and keeps it" if own else None
            self.say(f"landing: the learning rate goes down to zero in {time}", hint)
        else:
            lacking = (
                f"{', '.join(own)} finds it itself" if own else "no optimizer of torch was met"
            )
            self.say(
                f"landing: only the end is brought forward in {time}, the learning rate is left",
                f"{lacking}: there is none to take down",
            )

    def rate_from_here(self) -> None:
        """It goes down from what the script has it at now."""
        if self.rate is not None:
            self.rate.from_here()

    def way_down(self) -> float:
        """Share of the way down that is behind."""
        return self.descent.advance(self.used(), self.host.steps, self.total())

    def used(self) -> float:
        """Share of the time to the last step that is behind."""
        elapsed = self.time.elapsed()
        left = max(0.0, self.until_last_step() - LAST * self.pace.recent_s)
        return elapsed / (elapsed + left)

    def changes_rates(self) -> bool:
        """Whether it goes down by now; before that nothing of the script's is touched."""
        return self.descent.began is not None or self.orders.share is not None

    def changed_rate(self, own: float, largest: float) -> float:
        """The rate of the next step, of the script's own and its largest."""
        down = self.orders.share_at(self.host.steps) if self.ranks > 1 else None
        if self.ranks == 1 and self.descent.began is not None:
            down = self.way_down()
        if down is None:
            return own
        late = self.orders.late or self.descent.late
        falls = self.orders.falls or self.descent.falls
        down = 1.0 if self.over else down
        return self.descent.rate(own, largest, down, late=late, falls=falls)

    def may_save(self, size: int) -> bool:
        """Whether there is time to write so many bytes, and for the script to write them once more.

        Where it has no save of its own the end is rather late than without what was learnt.
        """
        left = max(0.0, self.time.for_steps()) + self.time.margin()
        known = self.saved_at is not None  # then the time for it is kept free
        if known or 2 * size / DISK_BYTES_PER_S <= left:
            return True
        return self.over and not saves(sys._getframe())

    def save(self) -> bool:
        """Save what was learnt; whether that could be done."""
        self.stood_s()
        before = self.countdown.elapsed()
        optimizers = list(self.host.optimizers)
        problem = None if optimizers else "there is no optimizer of torch"
        saved = Saved((), 0.0)
        if any(is_sharded(optimizer) for optimizer in optimizers):
            problem = "the weights are in shards, one of each rank"
        try:
            if problem is None and not self.may_save(size := bytes_learnt(optimizers)):
                problem = f"there is no time to write {size / 2**20:,.0f} MiB"
            if problem is None:
                saved = write_checkpoint(self.checkpoint, optimizers, self.host.steps)
        except Exception as error:
            problem = str(error)
        self.time.saved_s = max(0.0, self.countdown.elapsed() - before - self.stood_s())
        self.time.written_s = min(saved.written_s, self.time.saved_s)
        if problem is None:
            self.saved_at, self.left_out = self.host.steps, saved.left_out
        if problem is not None and self.over:
            earlier = f"the newest safety checkpoint is of step {self.saved_at}: {self.checkpoint}"
            self.say(
                f"no safety checkpoint was written: {problem}",
                earlier if self.saved_at is not None else None,
            )
        return problem is None

    def end(self) -> None:
        """The time is up."""
        self.over = True
        self.one_ended = self.one_ended or self.time.shared
        leads = self.crew is None or self.crew.leads
        steps = self.host.steps
        whose = f"the share of {self.folds}" if self.time.shared else "the time"
        text = f"{whose} is up after {steps} step{'s' * (steps != 1)}"
        if self.descent.final_rate is not None:
            text += f", the rate at {100 * self.descent.final_rate:.1f} % of what it was"
        saved = leads and (self.saved_at == steps or self.save())
        if saved:
            text += f"; what was learnt is in {self.checkpoint}"
        self.say(text, None)
        if saved and self.left_out:
            names = ", ".join(self.left_out)
            self.say(
                f"the safety checkpoint is without the state of {names}, which has more in it than "
                "tensors and plain values",
                None,
            )
        alone = self.ranks == 1  # each by its own clock, one would validate and wait for the others
        last = alone and not self.time.shared
        cut = self.leave(cut=last and self.outlook.validated and self.time.late() > 0)
        drawn = self.outlook.drawn()
        if cut:
            self.say(
                "this epoch is left with its first step: the validation before it took until the time was up",
                None,
            )
        elif drawn and self.longer is not None and self.longer.divided and not self.went_on:
            self.say(
                f"this epoch is left after {drawn[0]} of {drawn[1]} batches",
                "what the script divides by len(loader) is too small for this epoch: "
                "take no best model by it",
            )
        if saves_last_only(self.ways_out()[0]):
            self.say(
                "the script saves what it has learnt in its last turn only, which this is not",
                f"take it from {self.checkpoint}" if saved else None,
            )
        late = 0.0 if self.time.shared else self.time.late(epochs_too=not cut)
        if late >= 1.0:
            self.say(f"even so it ends {duration(late)} late: so much more is left to do", None)

    def leave(self, *, cut: bool = False) -> bool:
        """Go out of the loops around the step, whose loaders run dry.

        ``cut``: with nothing more of the epoch, where that can be; whether it was.
        """
        self.left = False
        exits, last = self.ways_out()
        asked = library_ends()
        if self.loader is not None:
            self.loader.dry = not asked  # it validates once more
        cut = cut and last and cut_short(exits)
        followed = follow(exits, self.left_loops)
        self.inner_only = followed and not last
        if asked and not (followed and last):
            self.left = True  # of the next training another trainer is asked
        elif not (followed and last) and not self.runs_dry(exits):
            self.say(*self.why_it_goes_on(exits))
        elif not all(each.left or self.ends_dry(each) for each in exits):
            self.say("the loop around the steps goes on to its own end, at rate zero", LINE_AFTER)
        return cut and followed

    def ways_out(self) -> tuple[list[Exits], bool]:
        """Of the loops around the step: of all, or of those of one of several trainings."""
        return ways_out(sys._getframe(1), self.folds.loops if self.time.shared else 0)

    def ends_dry(self, exits: Exits) -> bool:
        """Whether a frame's loops end as their loader gives no more; who asks by `next` may not see that."""
        dry = ends_with_loader(exits.loops[-1], exits.frame)
        return self.outlook.epoch() is not None and dry

    def runs_dry(self, exits: list[Exits]) -> bool:
        """Whether the only loop ends by itself, as it draws from a loader that gives no more."""
        only = len(loops_of(exits)) == 1 and ends_with_loader(exits[0].loops[0], exits[0].frame)
        return self.outlook.epoch() is not None and only

    def left_loops(self) -> None:
        """The script's own ending begins, in which loaders give all that they have, and what it trains then
        has the rate that it is given. Where the time is shared another training is to come.
        """
        if self.time.shared:
            self.begin_anew()
            return
        self.left = True
        if self.rate is not None:
            self.rate.no_others()
        if self.loader is not None:
            self.loader.dry = False

    def begin_anew(self) -> None:
        """Another training has its own rate and all of its batches."""
        self.over = self.left = self.inner_only = False
        self.descent = Descent(self.descent.land)
        if self.loader is not None:
            self.loader.dry = False

    def why_it_goes_on(self, exits: list[Exits]) -> tuple[str, str | None]:
        """What is told where the loop around the training could not be left."""
        loops = loops_of(exits)
        ends = not exits or ends_with_loader(exits[-1].loops[-1], exits[-1].frame)
        dry = self.outlook.epoch() is not None and ends
        if not (dry or self.inner_only):
            hint = LINE_AFTER if loops else "set the library's loop fewer steps"
            return "the loop around the steps cannot be left: it goes on, at rate zero", hint
        what = "the loop around the epochs" if loops else "the library's loop"
        hint = LINE_AFTER if loops else "set it fewer epochs"
        return f"{what} cannot be left: each epoch gives one more step, at rate zero", hint


def ends_with_loader(loop: ast.For | ast.While, frame: FrameType) -> bool:
    """Whether a loop ends where its loader gives no more: not a ``while`` that asks for batches itself, nor
    one over what begins with the loader again.
    """
    if isinstance(loop, ast.While):
        return False
    return not starts_again(loop.iter, frame)
