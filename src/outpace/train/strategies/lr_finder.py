"""lr_finder: short trainings of copies tell the largest rate to train with."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, final

import msgspec

from outpace.errors import OutpaceError, UsageError
from outpace.records.training import Rates
from outpace.train import ranks
from outpace.train.climb import climb
from outpace.train.clock import done
from outpace.train.data import while_small
from outpace.train.drawing import svg
from outpace.train.layers import traceless
from outpace.train.rate import LONG, Climb, Found, careful, suggestion
from outpace.train.strategies.base import Sizing, Strategy

if TYPE_CHECKING:
    from outpace.train.run import Run

STEPS, FEWEST_STEPS = 16, 8
"""of a short training, and at least, as of one to a target, which may be short itself; fewer tell nothing"""
USUAL, MOST = 3, 9
"""short trainings that it takes as a rule, and at most"""
HELD = 3
"""steps of a short training to each batch that it is judged by"""
SHARE, LIMIT = 0.12, 0.14
"""of the training that short ones are to take, and of its time at most, should steps take longer, with the
trials of "auto" before them"""
WITH_TRIALS = 0.15
"""of its steps that both are to take"""
PASSES = 3.0
"""forward passes that a step takes as long as"""


@final
class LrFinder(Strategy):
    """The largest rate of the schedule is found by short trainings at several rates.

    What: copies of model and optimizer learn from the same ``steps`` batches (16 unless given, 8 with a
    target), each at another rate, and are judged on other batches. Rates are a factor of three apart, up or
    down as long as the loss falls. The middle of those that are as good as the best, smaller by as much as a
    long training needs it to be, is what they tell; with Adam and its like the rate is drawn from there
    towards a tenth of the size of the weights, which suits most trainings (`outpace.train.rate` says how,
    and how well that agrees with grids). Weights that were trained before, as norms tell or `transfer`, bear
    less: with those a thirtieth of that is tried first, and is what the rate is drawn to. Where all rates
    raise the loss a smaller one is taken than any of them. Weights, optimizer, generators, BatchNorm and the
    data are left as they were. `svg` draws it.
    Helps: where the rate is not known: with a new model, optimizer, batch size or loss.
    Harms: it costs what two to nine times ``steps`` steps do, an eighth of the training at most, or a seventh
    of its time, and meanwhile there is a copy of model and optimizer. It is good to a factor of two to three,
    with weights that were trained before to three or four; its interval, which is to hold the best rate in
    four of five trainings, says to what. That weights without norms were trained before is not seen.
    Source: short trainings as proxies for long ones, and their bias: Wu et al. 2018, arXiv 1803.02021;
    the rate over the length: Bjorck et al. 2024, arXiv 2409.19913; steps relative to the size of weights:
    Shazeer and Stern 2018, arXiv 1804.04235. It took the place of the range test (Smith 2015, arXiv
    1506.01186), which was further off with more steps.
    """

    name = "lr_finder"
    sets = ("the largest rate",)

    def __init__(self, *, steps: int | None = None) -> None:
        if steps is not None and steps < FEWEST_STEPS:
            raise UsageError(f"steps={steps}", f"give {FEWEST_STEPS} or more: fewer tell nothing")
        self.given, self.steps = steps, steps or STEPS
        self.made: Climb | None = None
        self.made_before: Rates | None = None
        """what was told of them before a resume"""
        self.found: Found | None = None
        self.most = math.inf
        """where all rates that were tried have raised the loss one below them"""
        self.holds: Callable[[float, float], bool] | None = None
        """whether trials, where it is part of such, have so many steps and seconds left for it"""

    def prepare(self, run: Run) -> None:
        """Nothing was found yet."""
        self.made, self.made_before, self.found, self.most = None, None, None, math.inf
        soon = any(each.name == "target" for each in run.events.strategies)
        self.steps = self.given or (FEWEST_STEPS if soon else STEPS)

    def begin(self, run: Run) -> None:
        """Find the rate and set it."""
        if run.resumed:
            return
        began = run.clock.read()
        why = self.look(run, began)
        rate, low, high = self.found or Found(0.0, 0.0, 0.0)
        if run.world > 1:  # the same on all ranks: the middle of those that found one
            own = [math.log(each) if each else 0.0 for each in (rate, low, high)]
            *logs, count = ranks.summed([*own, rate > 0.0], run.device)
            rate, low, high = (math.exp(log / count) if count else 0.0 for log in logs)
            self.found = Found(rate, low, high) if count else None
        if not rate:
            run.note(f"lr_finder: {why}: the rate {self.left(run)}")
            return
        run.rates.set_peak(rate)
        seconds = run.clock.read() - began
        run.note(f"lr_finder: rate {rate:.2g} ({low:.2g} to {high:.2g}) {why} in {seconds:.1f} s")

    def left(self, run: Run) -> str:
        """Where none was found: the rate as it is for steps of their size, unless all rates that were tried
        have done harm; in words.
        """
        before = run.rates.peak
        for each in run.events.strategies:
            if isinstance(each, Sizing):
                run.rates.rescale(each.times)
        after, most = run.rates.peak, -ranks.most(-self.most, run.world)
        if most < after:
            run.rates.set_peak(most / run.rates.scale)
            return f"is {most:.2g}, below all that were tried"
        return (
            f"stays {after:.2g}" if after == before else f"goes with the steps' size: {after:.2g}"
        )

    @property
    def rates(self) -> Rates | None:
        """Its short trainings as a record, those before a resume too; None where it has made none."""
        if self.made is None:
            return self.made_before
        points = tuple((point.rate, finite(point.loss)) for point in self.made.points)
        return Rates(self.made.steps, finite(self.made.before), points, self.found)

    def state_dict(self) -> dict[str, Any]:
        """What its short trainings have told."""
        return {"rates": msgspec.to_builtins(self.rates)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Keep it: nothing is tried again."""
        self.made_before = msgspec.convert(state.get("rates"), Rates | None)

    def svg(self) -> str:
        """A drawing of its short trainings. Raises UsageError where it has made none."""
        if self.made is None:
            raise UsageError(
                "lr_finder has tried no rate", "draw it after a training of enough steps"
            )
        return svg(self.made, self.found)

    def look(self, run: Run, began: float) -> str:
        """Try rates; how, or why there is nothing found."""
        total, spent, together = run.clock.steps, run.spent, run.train.together
        since = began - spent.seconds

        def in_time(found: Sequence[Any]) -> bool:
            return run.clock.within(LIMIT, since)

        whole = self.room(total, together=together)
        if whole and not (in_time([]) and self.room(total, spent.steps, together)):
            return "trials have taken the share of the training in which rates are tried"
        count, batches = self.steps + held_of(self.steps), []
        if whole:
            batches = run.train.peek(count, while_small(in_time, run.world))
        if batches and not in_time(batches):
            return f"{len(batches)} batches in {LIMIT:.0%} of the time are too few to try rates"
        names = {each.name for each in run.events.strategies}
        try:
            if batches and run.clock.seconds < math.inf:
                total = steps_of(run, batches[0])
            steps = self.room(total, spent.steps, together)
            if not (steps and batches):
                after = f", of which trials took {spent.steps:.0f}," if spent.steps else ""
                return f"{total} steps{after} are too few to try rates"
            held = batches[-min(held_of(steps), max(1, len(batches) // 4)) :]
            learnt = batches[: len(batches) - len(held)] or batches
            with run.objective.kept():
                self.made = climb(
                    run.copies,
                    run.objective,
                    (learnt, held),
                    steps,
                    lambda made: self.goes_on(run, made, steps, began),
                    run.mean_of_ranks,
                    trained_before="transfer" in names,
                    aims="target" in names,
                    scaler=run.scaler,
                )
        except OutpaceError:
            raise
        except Exception as error:  # of a model, an optimizer or a loss that does not bear it
            return f"no rate can be tried on a copy ({error})"
        total = total or LONG
        if "target" in names:
            total = min(total, LONG)  # it may be there long before its budget is used
        self.found = suggestion(self.made, total)
        self.most = careful(self.made, total) or math.inf
        by = "by" if self.found else "no rate lowers the loss in"
        return f"{by} {len(self.made.points)} trainings of {steps} steps"

    def goes_on(self, run: Run, made: int, steps: int, began: float) -> bool:
        """Whether there is room for one more short training than were made."""
        now, worth = run.clock.read(), cost(steps, made + 1)
        next_s = (now - began) / made
        in_time = now - began + run.spent.seconds + next_s < LIMIT * run.clock.seconds
        most = run.train.together * allowed(run.clock.steps, run.spent.steps)
        paid = made < USUAL or worth <= most
        held = self.holds is None or self.holds(worth, next_s)
        return made < MOST and in_time and paid and held

    def room(self, total: int | None, spent: float = 0.0, together: int = 1) -> int:
        """Steps of a short training, so that as many as usual take no more than their share of all steps,
        of which trials have ``spent`` some; 0 where they are too few. ``together``: batches of each of these.
        """
        if total is None:
            return self.steps
        each = int(together * allowed(total, spent) / USUAL)
        steps = min(self.steps, each - math.ceil(held_of(each) / PASSES))
        return steps if steps >= FEWEST_STEPS else 0


def finite(loss: float) -> float | None:
    """A loss as JSON has it."""
    return loss if math.isfinite(loss) else None


def allowed(total: float | None, spent: float) -> float:
    """Steps that short trainings may take of all, of which trials have ``spent`` some."""
    return math.inf if total is None else min(SHARE * total, WITH_TRIALS * total - spent)


def held_of(steps: int) -> int:
    """Batches to judge by."""
    return max(2, steps // HELD)


def cost(steps: int, trainings: int = USUAL) -> float:
    """Steps that so many short trainings are worth, judging and the losses before included."""
    return trainings * steps + (trainings + 1) * held_of(steps) / PASSES


LEAST = USUAL * (FEWEST_STEPS + math.ceil(held_of(FEWEST_STEPS) / PASSES))
"""steps with which it finds a rate at all, as a rule"""


def steps_of(run: Run, batch: Any) -> int | None:
    """How many there will be: where a budget ends them, by how long a forward pass takes."""
    with traceless(run.module), run.objective.kept():
        run.objective(run.module, batch)  # the first one warms up
        began = done(run.clock.read)
        run.objective(run.module, batch)
        step_s = PASSES * (done(run.clock.read) - began)
    step_s *= run.train.together
    by_time = int(run.clock.seconds / step_s) if step_s > 0 else None
    return min((n for n in (run.clock.steps, by_time) if n is not None), default=None)
