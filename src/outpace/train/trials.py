"""Short paired trainings of copies: is one way to train better than another?

All train from the same first weights on the same batches in the same order, each with its whole course
(warm-up, fall to zero): as many steps, or as long where a step of one takes another time. What is
compared is the loss on batches that none of them learnt from, seed by seed. Model, optimizer, data and
generators are left as they are, bit for bit.

A rate that is best in a short training may be too large for a long one (`outpace.train.rate.horizon`).
`Trials.horizon` is how many times as large it may have to be for a trial. Cut off without their fall to
zero, trainings would prefer far too small ones (Wu et al. 2018, arXiv 1803.02021).

Ranks try together, as they train: they exchange gradients, and what decides is the mean of all of them.
An error on one rank alone ends them all, as it does in training.

Limits: seeds differ by the order of batches and by dropout, not by first weights. What pays late in a
training only is not seen. No recipe, no shards; batches are drawn once, and are as they are drawn.
"""

from __future__ import annotations

import copy
import math
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, NamedTuple, final

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray

from outpace.errors import UsageError
from outpace.measure.statistics import mean, stdev
from outpace.records.training import Tried
from outpace.seams.batch import batch_size
from outpace.seams.generators import generators_kept
from outpace.serve.loader import Loader
from outpace.serve.order import Repeated
from outpace.train import ranks
from outpace.train.checkpoint import seed_all
from outpace.train.clock import Clock
from outpace.train.data import FEWEST_HELD, Batches, Fresh, fresh, while_small
from outpace.train.loop import train as train_loop
from outpace.train.objective import Objective
from outpace.train.optimizers import Given, copies
from outpace.train.progress import Telling
from outpace.train.rate import horizon
from outpace.train.result import Spent
from outpace.train.run import Run
from outpace.train.start import first_weights
from outpace.train.strategies import LrFinder
from outpace.train.strategies.base import Events, Strategy
from outpace.train.strategies.lr_finder import cost

SEEDS = 4
"""looked at, at most"""
MARGIN, FLOOR = 0.005, 0.002
"""of what was learnt: a smaller gain is none; a spread between seeds is taken to be at least so large"""
STUDENT = (3.08, 1.89, 1.64, 1.53, 1.48)
"""quantiles of Student's t, 90 %, one-sided, for two seeds and more: what is taken by luck is no worse"""
FORWARD = 1 / 3
"""of a step that as many samples take to be judged by"""
SPARE = 1.2
"""times as long as before that a trial may take"""

NOWHERE = np.zeros(0, np.int64)

Verdict = Literal["better", "no difference", "worse"]
Arm = tuple[str, tuple[str, ...], float | None]
"""name, names of strategies, rate"""


class Parts(NamedTuple):
    """Of a training that is to begin. ``optimizer``: the user's, or a function from parameters to one, or
    None; ``total``: its steps, where that is known; ``world``: ranks that train together, on whose clock
    all of them go; ``unused``: the loss does not reach all weights.
    """

    module: torch.nn.Module
    objective: Objective
    optimizer: Given
    train: Batches
    valid: Batches | None
    clock: Clock
    total: int | None
    world: int = 1
    unused: bool = False


class Variant(NamedTuple):
    """A way to train. ``rate``: the largest; None leaves it to strategies and optimizer. ``timed``: its
    steps take another time. ``by_metric``: it changes what the loss tells. ``raised``: times as large as that
    of a whole training a trial's rate is.
    """

    name: str
    strategies: tuple[Strategy, ...] = ()
    rate: float | None = None
    timed: bool = False
    by_metric: bool = False
    raised: float = 1.0

    @property
    def arm(self) -> Arm:
        """What tells it from others: a name alone may be given again with other strategies."""
        return self.name, tuple(each.name for each in self.strategies), self.rate


class Ended(NamedTuple):
    """What a trial ended at, smaller is better, and how long it trained."""

    loss: float
    metric: float
    seconds: float

    def cost(self, variant: Variant) -> float:
        """By which ``variant`` is judged."""
        return self.metric if variant.by_metric else self.loss


@final
class Purse:
    """What trials may use of ``seconds`` on a clock and of ``steps``; a judged batch is part of one."""

    def __init__(self, read: Callable[[], float], seconds: float, steps: float) -> None:
        self.read, self.seconds, self.steps = read, seconds, steps
        self.began, self.paid = read(), 0.0

    def pay(self, steps: float) -> None:
        """Take so many steps out; the seconds go by themselves."""
        self.steps -= steps
        self.paid += steps

    def spent(self) -> Spent:
        """By now."""
        return Spent(self.read() - self.began, self.paid)

    def holds(self, steps: float, seconds: float) -> bool:
        """Whether so much is left."""
        return steps <= self.steps and self.read() - self.began + seconds <= self.seconds


@final
class Shuffled:
    """Batches without an end, in an order of ``seed``'s; a loss or a model may write to what it is given."""

    def __init__(self, batches: Sequence[Any], seed: int) -> None:
        self.batches, self.seed = batches, seed

    def __iter__(self) -> Iterator[Any]:
        chance = random.Random(self.seed)
        while True:
            yield from map(fresh, chance.sample(self.batches, len(self.batches)))


@final
class Trials:
    """Trials of ``steps`` steps each. ``total``: those of the training itself, as far as is known;
    ``metric``: whether any of them is judged by it, as it may take far longer than the loss.
    """

    def __init__(
        self, parts: Parts, *, steps: int, total: float | None, purse: Purse, metric: bool = True
    ) -> None:
        self.module, self.objective, self.optimizer = parts[:3]
        self.asked = self.objective
        """with its metric"""
        if not metric:
            self.objective = self.objective.without_metric()
        self.world, self.unused = parts.world, parts.unused
        self.train, self.clock, self.steps, self.purse = parts.train, parts.clock, steps, purse
        self.total = total
        self.horizon = horizon(steps, total or steps)
        began = parts.clock.read()
        self.batches, held_out, self.apart = drawn(
            parts.train, parts.valid, steps, purse, self.world
        )
        self.held_out = Fresh(held_out)
        if not (self.batches and self.held_out):
            few = parts.train.whole is not None and parts.train.whole < FEWEST_HELD
            why = "an epoch has too few batches" if few else "too few batches came in time"
            raise UsageError(f"{why} to hold some out")
        judging = FORWARD * samples(self.held_out) / samples(self.batches[:1])
        self.judging = ranks.most(judging, self.world)
        """steps that it is worth to judge a model"""
        self.batch_s = (parts.clock.read() - began) / len(self.batches)
        """that one took to make"""
        self.step_s = 0.0
        """that a step, or as much of judging, took last"""
        self.ended: dict[tuple[Arm, int], Ended] = {}
        self.resampled: dict[Arm, list[Any]] = {}
        """batches of variants that draw others"""
        self.finder = LrFinder()
        """that has told a rate last, or is to: the next one has as many steps"""
        self.first = self.untrained(Variant("as it is"))

    # --- what is left ----------------------------------------------------------------------------

    @property
    def costs(self) -> float:
        """Steps that a trial is worth, judging included."""
        return self.steps + self.judging

    def room(self, count: int, more: float = 0.0) -> bool:
        """Whether so many trials can be paid for, and so many steps more."""
        steps = count * self.costs + more
        return self.purse.holds(steps, SPARE * steps * self.step_s)

    def spent(self, steps: float, began: float) -> float:
        """Pay, and learn how long a step takes. Returns the seconds."""
        seconds = self.clock.read() - began
        self.purse.pay(steps)
        self.step_s = seconds / steps
        return seconds

    # --- one trial -------------------------------------------------------------------------------

    def begun(self, variant: Variant, seed: int, clock: Clock) -> Run:
        """A copy of the training, about to begin."""
        strategies = copy.deepcopy(variant.strategies)
        model, optimizer = copies(self.optimizer, self.module, strategies)
        seed_all(seed)
        source = self.train.source
        again: Any = copy.copy(source) if isinstance(source, Loader) else source
        device = self.train.device
        several = self.world > 1
        run = Run(
            model=ranks.wrapped(model, device, unused=self.unused) if several else model,
            module=model,
            optimizer=optimizer,
            objective=copy.copy(self.objective),  # a strategy may have another loss be learnt from
            train=Batches(again, device),
            valid=Batches(self.held_out, device),
            clock=clock,
            events=Events(strategies),
            telling=Telling(quiet=True),
            device=device,
            world=self.world,
            unused=self.unused,
        )
        batches = run.train.seen = self.batches
        for strategy in strategies:
            strategy.prepare(run)
        if isinstance(source, Loader) and again.order is not source.order:
            if variant.arm not in self.resampled:
                self.without_held_out(again)
                self.resampled[variant.arm] = Batches(again, device).peek(len(batches))
            batches = self.resampled[variant.arm]
        together = run.train.together
        run.train = Batches(Shuffled(batches, seed), device)
        run.train.seen = batches  # what is looked at is each of them once
        run.train.together = together
        first_weights(run)
        if variant.rate is not None:
            run.rates.set_peak(variant.rate)
        if variant.raised != 1.0:
            run.rates.rescale(variant.raised)  # also what strategies are yet to set
        return run

    def without_held_out(self, again: Loader) -> None:
        """Have none of the samples that are judged by be learnt from where others are drawn."""
        if isinstance(again.order, Repeated) and self.apart.size:
            factors = np.diff(again.order.ends, prepend=0.0)
            factors[self.apart] = 0.0
            if factors.any():
                again.repeat(factors)

    def trained(self, variant: Variant, seed: int, seconds: float | None = None) -> Ended:
        """Train a copy: for ``steps``, or for as long as another took."""
        began = self.clock.read()
        steps = self.steps if seconds is None else None
        with generators_kept(), self.objective.kept():
            run = self.begun(variant, seed, Clock(seconds, steps, self.clock.now))
            train_loop(run)
        row = run.history[-1]
        taken = self.spent(self.costs, began)
        return self.ended_at(row.valid_loss, row.metric, taken - run.clock.validation_s)

    def ended_at(self, loss: float | None, metric: float | None, seconds: float) -> Ended:
        """With costs, of which smaller ones are better."""
        cost = None if metric is None else -self.objective.sign * metric
        return Ended(finite(loss), finite(cost), seconds)

    def untrained(self, variant: Variant) -> Ended:
        """What its first weights are worth."""
        began = self.clock.read()
        with generators_kept(), self.objective.kept():
            model = self.begun(variant, 0, Clock(None, 1, self.clock.now)).module.eval()
            with torch.no_grad():
                own = self.objective.judge(model, self.held_out)
        found = ranks.judged(own, self.world, self.train.device)
        taken = self.spent(self.judging, began)
        return self.ended_at(found.loss, found.metric, taken)

    def rate_of(self, variant: Variant) -> tuple[float, str]:
        """The rate of a whole training that lr_finder tells for a variant, and its words."""
        self.finder = finder = LrFinder(steps=self.finder.steps)
        finder.holds = self.purse.holds
        began = self.clock.read()
        total = None if self.total is None else int(self.total)
        with generators_kept(), self.objective.kept():
            run = self.begun(variant, 0, Clock(None, total, self.clock.now))
            finder.begin(run)
        made = finder.made
        steps = cost(made.steps, len(made.points)) if made is not None else 1.0
        self.spent(ranks.mean(steps, self.world, self.train.device), began)
        return run.rates.peak, run.notes[-1]

    # --- comparing -------------------------------------------------------------------------------

    def contest(
        self, base: Variant, others: Sequence[tuple[Variant, str]], seeds: int = SEEDS
    ) -> list[Tried]:
        """Each of ``others``, with the reason to try it, against ``base``.

        What is not ahead after a seed is dropped. It ends as soon as all is clear, or where the purse
        does not hold another seed.
        """
        found: dict[str, Tried] = {}
        open_ = list(others)
        for seed in range(seeds):
            new = self.unknown([base, *(other for other, _ in open_)], seed)
            if not open_ or (new and not self.room(new)):
                break
            for other, why in list(open_):
                spent = found[other.name].seconds if other.name in found else 0.0
                tried = self.against(base, other, seed, why, spent)
                found[other.name] = tried
                if tried.verdict != "open":
                    open_.remove((other, why))
        return [closed(found[other.name]) for other, _ in others if other.name in found]

    def unknown(self, variants: Sequence[Variant], seed: int) -> int:
        """How many of them were not trained from that seed."""
        return sum((each.arm, seed) not in self.ended for each in variants)

    def against(self, base: Variant, other: Variant, seed: int, why: str, spent: float) -> Tried:
        """One more seed of both; the verdict so far. ``spent``: seconds that seeds before it took."""
        began = self.clock.read() - spent
        one, two = base.arm, other.arm
        if (one, seed) not in self.ended:
            self.ended[one, seed] = self.trained(base, seed)
        seconds = self.ended[one, seed].seconds if other.timed else None
        try:
            if (two, seed) not in self.ended:
                self.ended[two, seed] = self.trained(other, seed, seconds)
        except Exception as error:
            taken = self.clock.read() - began
            return Tried(other.name, base.name, str(error), 0, 0, 0, 0, self.steps, taken, why)
        pairs = [(self.ended[one, i], self.ended[two, i]) for i in range(seed + 1)]
        costs = [(first.cost(other), second.cost(other)) for first, second in pairs]
        learnt = self.first.cost(other) - mean(one for one, _ in costs)
        said, gain = verdict(costs, learnt, abs(self.first.cost(other)))
        # A metric is told as it is, though the larger may be the better.
        sign = -self.objective.sign if other.by_metric else 1
        return Tried(
            other.name,
            base.name,
            said,
            sign * mean(two for _, two in costs),
            sign * mean(one for one, _ in costs),
            gain,
            seed + 1,
            self.steps,
            self.clock.read() - began,
            why,
        )


def verdict(
    costs: Sequence[tuple[float, float]], learnt: float, first: float
) -> tuple[Verdict | Literal["open"], float]:
    """Of pairs (base, other): whether other is better, and its gain as a share of what base learnt.

    Better: the mean gain less its error is above the margin, by Student's t, one-sided, 90 %. That is looked
    at after each seed from the second on: of candidates that change nothing up to 17 % are taken for better
    by luck, each by itself (simulated, normal noise). No difference, or worse, as soon as the mean gain is
    not above the margin: where it is not clear nothing is changed. ``first``: the size of the cost of first
    weights, by whose tenth a gain is measured where base learnt nothing.
    """
    if any(math.isinf(other) for _, other in costs):
        return "worse", -math.inf
    if any(math.isinf(base) for base, _ in costs):
        return ("better" if len(costs) > 1 else "open"), math.inf
    scale = max(learnt, 0.1 * first, 1e-12)
    gains = [(base - other) / scale for base, other in costs]
    middle = mean(gains)
    if middle <= MARGIN:
        return ("worse" if middle < -MARGIN else "no difference"), middle
    if len(gains) == 1:
        return "open", middle
    spread = max(stdev(gains), FLOOR) / math.sqrt(len(gains))
    sure = middle - STUDENT[min(len(gains), len(STUDENT) + 1) - 2] * spread > MARGIN
    return ("better" if sure else "open"), middle


def closed(tried: Tried) -> Tried:
    """As it is told where no more seeds are looked at."""
    if tried.verdict != "open":
        return tried
    return msgspec.structs.replace(tried, verdict="ahead" if tried.seeds == 1 else "not clear")


def drawn(
    train: Batches, valid: Batches | None, steps: int, purse: Purse, world: int = 1
) -> tuple[list[Any], list[Any], NDArray[np.int64]]:
    """Batches to learn from, at most ``steps``, others to judge by, and the places in the data of the samples
    of these, on all ranks, where they are a Loader's.

    Others: all of ``valid`` where that is short, as its first batches may be of one class alone; else
    some of the training's.
    """
    held = held_of(steps)
    length = valid.length if valid is not None else None
    whole = bool(ranks.least(length is not None and length <= 2 * held, world))
    began, some = purse.read(), 0.1 * purse.seconds
    places: list[NDArray[np.int64]] = []

    def in_time(_: Sequence[Any]) -> bool:
        if isinstance(train.source, Loader):
            places.append(train.source.indices)
        return purse.read() - began < some

    found = train.peek(steps if whole else steps + held, while_small(in_time, world))
    if whole and found:
        assert valid is not None
        most = 2 * held * samples(found[:1])

        def few(judged: list[Any]) -> bool:
            # Ranks may have unequal numbers of batches here, and to read their clock they would have to meet.
            in_time = world > 1 or purse.read() - began < 2 * some
            return in_time and samples(judged) <= most

        others = valid.peek(2 * held, few)
        whole = samples(others) <= most and (len(others) == length or few(others))
        if ranks.least(whole, world):
            return found, others, NOWHERE
    held = min(held, len(found) // 4)
    apart = np.concatenate([NOWHERE, *places[:held]])
    if world > 1:  # what others judge by too: all ranks draw by the same factors
        apart = np.concatenate(ranks.gathered(apart, world))
    return found[held:], found[:held], apart


def samples(batches: Sequence[Any]) -> int:
    """In all of them, at least one."""
    return max(1, sum(map(batch_size, batches)))


def held_of(steps: int) -> int:
    """Batches to judge by."""
    return max(4, steps // 6)


def finite(cost: float | None) -> float:
    """Infinite where there is none, or it is not a number."""
    return math.inf if cost is None or math.isnan(cost) else cost
