"""How much of the time to a deadline is for steps: what is left, less what the script's end takes."""

from __future__ import annotations

from outpace.plan.countdown import Countdown
from outpace.plan.folds import Share
from outpace.plan.outlook import Outlook
from outpace.records.plan import Estimate

EXIT_S = 1.1
"""for a process with torch to end once the script has, as long as that was not looked into"""
LAUNCHER_S = 1.0
"""more, for a launcher that waits for all of its ranks"""
MARGIN, MARGIN_AFTER_S, LEAST_MARGIN_S, MOST_MARGIN_S = 0.012, 10.0, 0.15, 30.0
"""of the budget less its first seconds, left free: with them what is foreseen may change; in seconds, at
least what one end of a process differs from another by
"""
VARY = 1.1
"""times that the last validation may take as long as those before"""
UNSEEN, UNTOUCHED = 0.25, 0.1
"""of the budget that is left for validations that were never seen, and for a test after training"""


class TimeLeft:
    """All in seconds. ``ranks``: processes that train together."""

    def __init__(self, countdown: Countdown, outlook: Outlook, ranks: int = 1) -> None:
        self.exit_s = EXIT_S
        self.countdown, self.outlook, self.ranks = countdown, outlook, ranks
        self.share: Share | None = None
        """of the training that runs, where the script is brought to its end; None: it has all of the time"""
        self.saved_s: float | None = None
        """that it took to save what was learnt"""
        self.written_s = 0.0
        """of it, to write the file: the script's own save has nothing to look for"""

    def validating(self) -> float:
        """An epoch's validation, the longest that is to be expected."""
        expected = VARY * self.outlook.validation()
        return expected if self.outlook.pace.paused else min(expected, UNSEEN * self.budget)

    def at_the_end(self) -> float:
        """What the script judges by once it has trained: its validation again, or data not used so far."""
        again = self.validating() if self.outlook.evaluates and not self.shared else 0.0
        return max(again, min(VARY * self.outlook.untouched(), UNTOUCHED * self.budget))

    @property
    def shared(self) -> bool:
        """Whether another training is to have time too."""
        return self.share is not None and self.share.parts > 1

    def elapsed(self) -> float:
        """Of the time that the training which runs has."""
        return self.countdown.elapsed() - (0.0 if self.share is None else self.share.began)

    def left(self) -> float:
        """The same that is left."""
        left = self.countdown.left()
        if self.share is None or not self.shared:
            return left
        elapsed = self.countdown.elapsed()
        return self.share.ends(elapsed + left - self.exiting() - self.margin()) - elapsed

    @property
    def budget(self) -> float:
        """Seconds in all."""
        return self.countdown.elapsed() + self.countdown.left()

    def ending(self, *, epochs_too: bool = True) -> float:
        """What is needed once no batch is given any more; ``epochs_too``: the last epoch's validation too."""
        judging = self.judging(epochs_too=epochs_too)
        if not self.outlook.pace.paused:
            judging = min(judging, UNSEEN * self.budget)  # steps come first
        saving = (self.saved_s or 0.0) + self.written_s  # ours, and the script's own
        if self.shared:
            return judging + saving
        return self.exiting() + judging + saving + self.margin()

    def judging(self, *, epochs_too: bool = True) -> float:
        """What the script judges by after the last step."""
        within = self.outlook.epoch() is None or self.outlook.only_within
        judges = epochs_too and (not within or self.outlook.judged_by_library)
        return self.at_the_end() + (self.validating() if judges else 0.0)

    def late(self, *, epochs_too: bool = True) -> float:
        """That the end takes longer than is left, once what was learnt is saved; negative: it is in time.

        Without what is but expected: no margin, and no validation of which none was seen. ``epochs_too``: the
        running epoch's validation is still to come.
        """
        seen = self.judging(epochs_too=epochs_too) / VARY if self.outlook.pace.paused else 0.0
        return self.exiting() + seen + self.written_s - self.countdown.left()

    def margin(self) -> float:
        """For what was not foreseen."""
        share = MARGIN * (self.budget - MARGIN_AFTER_S)
        return min(MOST_MARGIN_S, max(LEAST_MARGIN_S, share))

    def exiting(self) -> float:
        """For the process to end."""
        return self.exit_s + (LAUNCHER_S if self.ranks > 1 else 0.0)

    def finish(self) -> Estimate | None:
        """To the end of a script that is left to itself, its last judging and its process included."""
        steps = self.outlook.finish()
        if steps is None:
            return None
        after = self.exiting() + self.at_the_end()
        return Estimate(steps.estimate + after, steps.low + after, steps.high + after)

    def for_steps(self) -> float:
        """Until steps have to be over; negative once they should have been."""
        return self.left() - self.ending()

    def for_epochs(self) -> float:
        """For all that `Outlook.finish` reckons with: steps, and the validations of all epochs."""
        return self.left() - self.ending(epochs_too=False)

    def until_next_chance(self, *, goes_on: bool) -> float:
        """To the end of the next step, after which it can be ended too.

        ``goes_on``: an epoch that is over gets the batches of the next.
        """
        group, to_epochs_end = self.outlook.host.group, self.outlook.to_epochs_end()
        # A validation comes between this step and the next.
        ends = to_epochs_end is not None and to_epochs_end <= group
        ends = ends and not (goes_on or self.outlook.only_within)
        between, cycle = self.validating() if ends else 0.0, self.outlook.cycle()
        if cycle is not None and cycle.left < group:
            between = max(between, VARY * cycle.seconds)
        return self.outlook.pace.recent_s + between

    def until_last_step(self, *, longer: bool) -> float:
        """Less than there is for steps where the end would fall into a validation.

        That validation is then the last one, as there is no time for another after it: unless it is
        an epoch's, which can be made ``longer``, until the time is up.
        """
        left, step_s = max(0.0, self.for_steps()), self.outlook.pace.step_s
        steps, epoch = self.outlook.to_epochs_end(), self.outlook.epoch()
        cycle = self.outlook.cycle()
        if step_s is None:
            return left
        if steps is not None and epoch is not None and not (longer or self.outlook.only_within):
            within = cycle.seconds / cycle.every if cycle is not None else 0.0
            left = up_to_pause(left, steps, epoch, step_s + within, self.validating())
        if cycle is not None:
            left = up_to_pause(left, cycle.left, cycle.every, step_s, VARY * cycle.seconds)
        return left


def up_to_pause(left: float, steps: float, every: float, step_s: float, pause_s: float) -> float:
    """Seconds of so many ``left`` that come before a pause which would not be over.

    The next pause comes after ``steps`` and the others each after ``every`` more.
    """
    training = every * step_s
    # As if what runs between two pauses had begun so long ago.
    into = left + (every - steps) * step_s
    return max(0.0, left - max(0.0, into % (training + pause_s) - training))
