"""lr_finder: short sweeps over all rates, on a copy, tell the largest rate to train with."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, final

from outpace.errors import UsageError
from outpace.train import ranks
from outpace.train.drawing import svg
from outpace.train.layers import traceless
from outpace.train.strategies.base import Sizing, Strategy
from outpace.train.sweep import Found, Sweeps, suggestion, sweeps

if TYPE_CHECKING:
    from outpace.train.run import Run

SWEEPS, STEPS, BATCHES = 3, 60, 32
SHARE, FEWEST_STEPS = 0.1, 30
"""of the training's steps that sweeps may take; fewer steps a sweep tell nothing"""
PASSES = 3.0
"""forward passes that a step takes as long as"""


@final
class LrFinder(Strategy):
    """The largest rate of the schedule is found by short sweeps from tiny to huge rates.

    What: on a copy of model and optimizer the rate grows by a constant factor a step until the loss is
    higher than at the begin, ``sweeps`` times on the same batches in another order, each loss compared
    with that of the first weights on the same batch. The rate is a fixed part of the one at which the
    middle of the sweeps blows up (`outpace.train.sweep` says why that part), its interval from drawing
    the sweeps anew. Weights, optimizer, generators, BatchNorm and the data are left as they were.
    `svg` draws it.
    Helps: where the rate is not known: with a new model, optimizer, batch size or loss.
    Harms: it costs up to ``sweeps`` x ``steps`` steps, at most a tenth of the training, and for the
    time two copies of the model and one of the optimizer. What blows up in so few steps is not all
    that may go wrong in many: the rate is good to a factor of three or four.
    Source: Smith 2015, arXiv 1506.01186; Smith and Topin 2017, arXiv 1708.07120.
    """

    name = "lr_finder"
    sets = ("the largest rate",)

    def __init__(self, *, sweeps: int = SWEEPS, steps: int = STEPS) -> None:
        self.sweeps, self.steps = sweeps, steps
        self.made: Sweeps | None = None
        self.found: Found | None = None

    def prepare(self, run: Run) -> None:
        """Nothing was found yet."""
        self.made = self.found = None

    def begin(self, run: Run) -> None:
        """Find the rate and set it."""
        if run.resumed:
            return
        began = run.clock.read()
        why = self.look(run, began)
        rate, low, high = self.found or Found(0.0, 0.0, 0.0)
        if run.world > 1:  # the same on all ranks: the middle of those that found one
            log, count = ranks.summed([math.log(rate) if rate else 0.0, rate > 0.0], run.device)
            rate = math.exp(log / count) if count else 0.0
        if not rate:
            before = run.rates.peak
            for each in run.events.strategies:
                if isinstance(each, Sizing):
                    run.rates.rescale(each.times)
            after = run.rates.peak
            goes = (
                f"stays {after:.2g}"
                if after == before
                else f"goes with the steps' size: {after:.2g}"
            )
            run.note(f"lr_finder: {why}: the rate {goes}")
            return
        run.rates.set_peak(rate)
        seconds = run.clock.read() - began
        interval = f" ({low:.2g} to {high:.2g})" if low < high else ""
        run.note(f"lr_finder: rate {rate:.2g}{interval} {why} in {seconds:.1f} s")

    def svg(self) -> str:
        """A drawing of its sweeps. Raises UsageError where it has made none."""
        if self.made is None:
            raise UsageError(
                "lr_finder has made no sweep", "draw it after a training of enough steps"
            )
        return svg(self.made, self.found)

    def look(self, run: Run, began: float) -> str:
        """Sweep; how, or why there is nothing found."""
        total = run.clock.steps
        count, steps = self.room(total)
        batches = run.train.peek(min(steps, BATCHES)) if count else []
        if batches and run.clock.seconds < math.inf:
            total = steps_of(run, batches[0])
            count, steps = self.room(total)
        if not count:
            return f"{total} steps are too few for a sweep"

        def go_on(made: int) -> bool:
            taken = run.clock.read() - began
            return made < count and taken * (made + 1) / made < SHARE * run.clock.seconds

        try:
            batches = batches[:steps]
            agreed = run.mean_of_ranks
            self.made = sweeps(run.copies, run.objective, batches, steps, go_on, agreed)
        except (RuntimeError, TypeError) as error:
            return f"no sweep on a copy ({error})"
        self.found = suggestion(self.made, adaptive="betas" in run.optimizer.defaults)
        blows = "by" if self.found else "the loss blows up at no rate in"
        made = len(self.made.changes)
        return f"{blows} {made} sweep{'s' if made > 1 else ''}"

    def room(self, total: int | None) -> tuple[int, int]:
        """Sweeps, and steps of each, that are no more than a tenth of all steps."""
        most = self.sweeps * self.steps if total is None else int(SHARE * total)
        if most < FEWEST_STEPS:
            return 0, 0
        count = max(1, min(self.sweeps, most // self.steps))
        return count, min(self.steps, most // count)


def steps_of(run: Run, batch: Any) -> int | None:
    """How many there will be: where a budget ends them, by how long a forward pass takes."""
    with traceless(run.module):
        run.objective(run.module, batch)  # the first one warms up
        began = run.clock.read()
        run.objective(run.module, batch)
    step_s = PASSES * (run.clock.read() - began)
    by_time = int(run.clock.seconds / step_s) if step_s > 0 else None
    return min((n for n in (run.clock.steps, by_time) if n is not None), default=None)
