"""`outpace.best_of`: several seeds, of which the better half goes on, round by round.

Successive halving (Jamieson and Talwalkar 2016, arXiv 1502.07943): each round all that are left train
twice as long as in the round before, then the worse half is dropped; two are trained to their end. All
follow the course of a whole training, so that in between they are compared at the same share of it.

Averages of weights: Wortsman et al. 2022, arXiv 2203.05482 (the greedy soup). They are good where
trainings began with the same weights, as in fine-tuning, and as a rule worse than each where they did
not. So each one is validated, and told. One seed trains at a time.
"""

from __future__ import annotations

import dataclasses
import math
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, final

import torch

from outpace.errors import UsageError
from outpace.plan.budget import duration, seconds_of
from outpace.seams.generators import generators_kept
from outpace.seams.modes import evaluating
from outpace.train import ranks
from outpace.train.auto import is_auto, own_of
from outpace.train.checkpoint import versioned
from outpace.train.layers import fit_buffers, with_later_buffers
from outpace.train.objective import Objective
from outpace.train.progress import Telling
from outpace.train.result import Choice, Kept, Result

if TYPE_CHECKING:
    from outpace.train.run import Run
    from outpace.train.trainer import Trainer

ROUND = "its round is over"
AVERAGING = 0.03
"""of the budget that is kept free to validate averages"""
NO_MEAN = {"pruning", "quantization_aware"}
"""strategies whose weights are none any more once they are averaged: each seed has zeros of its own"""
STARTING = 0.5
"""of what is left that all first steps together may wait for, by which rounds are reckoned"""

Make = Callable[[int], "Trainer"]


@final
class Pause:
    """A callback that ends a training at a share of it, from where it can go on. ``budget``: of the whole,
    by the seconds that came before the first step; None: it stays.
    """

    def __init__(self, until: float, budget: Callable[[float], float] | None = None) -> None:
        self.until, self.budget = until, budget

    def begin(self, run: Run) -> None:
        """There has to be an end that shares are of."""
        if run.clock.steps is None and math.isinf(run.clock.seconds):
            raise UsageError(
                "best_of compares seeds at shares of a training whose end is not known",
                "say how long: best_of(..., budget='1h'), or epochs= of the Trainer",
            )
        if self.budget is not None and not run.resumed:
            run.clock.seconds = self.budget(run.clock.read())

    def step_end(self, run: Run) -> None:
        """End it."""
        if self.until < 1.0 and run.clock.used >= self.until:
            run.end(ROUND)


@dataclass
class Contender:
    """A seed, and how far it came."""

    seed: int
    folder: Path
    result: Result | None = None
    cost: float = math.inf

    @property
    def seconds(self) -> float:
        """That it has trained."""
        return self.result.seconds if self.result is not None else 0.0


def best_of(
    make: Make,
    seeds: int = 4,
    *,
    budget: str | float | None = None,
    average: bool = True,
    quiet: bool = False,
) -> Result:
    """Train from several seeds, drop the worse half round by round, keep the best.

    ``make(seed)``: gives a Trainer whose model has the first weights of that seed; it is called once a
    round. ``budget``: time for all of them together, such as "2h"; None: each that is not dropped
    trains for as long as its Trainer says. ``average``: mean weights of those that were trained to
    their end are validated too, and taken where they are better; the result's notes say so. "auto" makes its
    trials once, with the first seed, and all begin with what came of them.

    Returns the best one's result; ``kept`` has those that were trained to their end, best first.
    Raises UsageError for fewer than two seeds, and for trainings without validation or without an end.

    Example::

        def make(seed):
            torch.manual_seed(seed)
            return outpace.Trainer(Net(), loss=F.cross_entropy, train=train, valid=valid, seed=seed)

        result = outpace.best_of(make, seeds=8, budget="2h")
    """
    if seeds < 2:
        raise UsageError(f"seeds={seeds}", "two or more can be compared")
    if ranks.expected() > 1:
        raise UsageError(
            "best_of trains in one process, and a launcher has started several",
            "train each seed by a Trainer of its own",
        )
    with tempfile.TemporaryDirectory(prefix="outpace-") as folder:
        return Halving(make, seeds, budget, Path(folder), average=average, quiet=quiet).best()


@final
class Halving:
    """All seeds under way."""

    def __init__(
        self,
        make: Make,
        seeds: int,
        budget: str | float | None,
        folder: Path,
        *,
        average: bool,
        quiet: bool,
    ) -> None:
        self.make, self.average, self.quiet = make, average, quiet
        self.telling = Telling(quiet=quiet)
        self.rounds = math.ceil(math.log2(seeds))
        self.counts = [math.ceil(seeds / 2**i) for i in range(self.rounds)]
        """contenders of each round, each of which trains twice as long as in the one before"""
        self.budget_s = math.inf if budget is None else seconds_of(budget)
        self.contenders = [Contender(i, folder / f"seed-{i}") for i in range(seeds)]
        self.notes: list[str] = []
        self.began: float | None = None
        self.started = datetime.now().astimezone().isoformat(timespec="seconds")
        self.choices: dict[tuple[str, ...], Choice] = {}
        """what "auto" came to, by the names of the strategies that it was given with"""
        self.trials_s = 0.0

    def best(self) -> Result:
        """Round by round."""
        left: list[Contender] = self.contenders
        trainer: Trainer | None = None
        for number in range(self.rounds):
            for index, contender in enumerate(left):
                trainer = self.go_on(contender, number, len(left) - index)
                if contender.result is not None and contender.result.time_to_target_s is not None:
                    return self.told(contender, [contender])
            left = sorted(left, key=lambda each: each.cost)
            if number + 1 < self.rounds:
                left = self.halved(left, self.counts[number + 1])
        kept = self.told(left[0], left)
        if not self.average or trainer is None:
            return kept
        try:
            return self.averaged(trainer, kept)
        except Exception as error:  # all that was trained is there
            note = f"no mean of the best was taken ({type(error).__name__}: {error})"
            self.telling.say(note)
            return dataclasses.replace(kept, notes=(*kept.notes, note))

    def go_on(self, contender: Contender, number: int, waiting: int) -> Trainer:
        """Train one for a round. ``waiting``: those of the round that are not trained yet, it included."""
        trainer = self.make(contender.seed)
        if trainer.valid is None:
            raise UsageError("best_of compares validations, and there is no valid=", "give it")
        if trainer.checkpoint is not None:
            raise UsageError(
                "best_of keeps seeds in a folder of its own while it trains, and checkpoint= is given",
                "leave it out: the result has the best weights",
            )
        now = trainer.now()
        self.began = now if self.began is None else self.began
        trainer.seed, trainer.checkpoint, trainer.every_s = (
            contender.seed,
            contender.folder,
            math.inf,
        )
        trainer.lasting = False
        until = (2 ** (number + 1) - 1) / (2**self.rounds - 1)
        budget = None
        if math.isfinite(self.budget_s):
            budget = partial(self.budget, trainer, contender.seconds, number, waiting)
            trainer.budget_s = budget(0.0)
        if contender.result is None:
            self.give_choice(trainer)
        if budget is not None:  # trials are paid by all, not by the one that they were made with
            trainer.budget_s = budget(0.0)
        trainer.callbacks = [*trainer.callbacks, Pause(until, budget)]
        contender.result = trainer.fit(quiet=self.quiet)
        metric = contender.result.metric
        contender.cost = math.inf
        if metric is not None and not math.isnan(metric):
            contender.cost = -trainer.objective.sign * metric
        return trainer

    def budget(
        self, trainer: Trainer, seconds: float, number: int, waiting: int, first_s: float
    ) -> float:
        """Of a whole training that has trained for ``seconds``, where all that is left is spent on rounds.

        ``first_s``: what comes before a first step, such as lr_finder's trainings: it is no part of a round,
        and those that wait are taken to need as long.
        """
        assert self.began is not None
        gone = trainer.now() - self.began - first_s
        free = self.budget_s * (1.0 - AVERAGING * self.average) - gone
        free -= min(waiting * first_s, STARTING * free)
        later = range(number + 1, self.rounds)
        shares: int = waiting * 2**number + sum(self.counts[i] * 2**i for i in later)
        ahead: int = 2**self.rounds - 2**number
        return seconds + first_s + max(0.0, free) / shares * ahead

    def give_choice(self, trainer: Trainer) -> None:
        """Have a training begin with what "auto" came to for the first one like it."""
        names = tuple(each.name for each in own_of(trainer.strategies))
        if not is_auto(trainer.strategies):
            return
        if names not in self.choices:
            began = trainer.now()
            self.choices[names], notes = trainer.choose(self.telling)
            self.trials_s += trainer.now() - began
            self.notes += notes
        trainer.choice = self.choices[names]

    def halved(self, ranked: Sequence[Contender], count: int) -> list[Contender]:
        """The better ones."""
        dropped = ", ".join(f"{each.seed} ({_metric(each):.4g})" for each in ranked[count:])
        kept = ", ".join(f"{each.seed} ({_metric(each):.4g})" for each in ranked[:count])
        self.note(f"seeds {kept} go on, dropped: {dropped}")
        return list(ranked[:count])

    def told(self, best: Contender, kept: Sequence[Contender]) -> Result:
        """The result of the best, with the others beside it."""
        assert best.result is not None
        names = ", ".join(f"{each.seed} ({_metric(each):.4g})" for each in kept)
        seconds = self.trials_s + sum(each.seconds for each in self.contenders)
        self.note(
            f"of {len(self.contenders)} seeds {best.seed} is the best; trained to their end: {names}; "
            f"all took {duration(seconds)}"
        )
        rows = []
        for each in kept:
            result = each.result
            if result is not None and result.best is not None and result.metric is not None:
                rows.append(Kept(each.seed, result.metric, result.best, result.weights))
        notes = (*best.result.notes, *self.notes)
        return dataclasses.replace(best.result, started=self.started, notes=notes, kept=tuple(rows))

    def note(self, text: str) -> None:
        """Tell it, and keep it for the result."""
        self.notes.append(text)
        self.telling.say(text)

    def averaged(self, trainer: Trainer, result: Result) -> Result:
        """With the mean weights of the best and of those that make it better, if any does."""
        sign = trainer.objective.sign
        apart = {each.name for each in own_of(trainer.strategies)} & NO_MEAN
        if not result.kept or result.metric is None or apart or judged_by_own(trainer.objective):
            return result
        inside, best, weights = [result.kept[0]], result.metric, result.weights
        tried = list[str]()
        for each in result.kept[1:]:
            if shapes(each.weights) != shapes(weights):
                tried.append(f"no mean with seed {each.seed}: its buffers have other shapes")
                continue
            mean = mean_of([*(one.weights for one in inside), each.weights])
            metric = judged(trainer, mean)
            better = sign * metric > sign * best
            tried.append(
                f"the mean with seed {each.seed}: {metric:.4g} for {best:.4g}, "
                f"{'taken' if better else 'left out'}"
            )
            if better:
                inside, best, weights = [*inside, each], metric, mean
        for text in tried:
            self.telling.say(text)
        notes, reached_s = (*result.notes, *tried), result.time_to_target_s
        if result.target is not None and sign * best >= sign * result.target and len(inside) > 1:
            reached_s = self.trials_s + sum(each.seconds for each in self.contenders)
        return dataclasses.replace(
            result, notes=notes, metric=best, weights=weights, time_to_target_s=reached_s
        )


def judged_by_own(objective: Objective) -> bool:
    """Whether what is judged by is a loss that learns or keeps something itself: each seed's is another."""
    if objective.metric is not None:
        return False
    learn = any(True for each in objective.losses.values() for _ in each.parameters())
    return learn or bool(objective.own([]))


def shapes(weights: dict[str, torch.Tensor]) -> dict[str, torch.Size]:
    """By name."""
    return {name: each.shape for name, each in weights.items()}


def mean_of(weights: Sequence[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    """The mean of each tensor of numbers; what counts, such as BatchNorm's batches, is the first's."""
    found = {
        name: torch.stack([each[name] for each in weights]).mean(0)
        if first.is_floating_point() or first.is_complex()
        else first.clone()
        for name, first in weights[0].items()
    }
    return versioned(found, weights[0])


def judged(trainer: Trainer, weights: dict[str, torch.Tensor]) -> float:
    """The metric of weights, or the validation loss where there is no metric; the trainer's model is
    left with them.
    """
    model = trainer.model
    fit_buffers(model, weights)
    model.load_state_dict(with_later_buffers(weights, model))
    valid = trainer.data()[1]
    assert valid is not None
    try:
        with torch.no_grad(), generators_kept(), evaluating(model):
            found = trainer.objective.judge(model, valid.epoch())
    finally:
        valid.close()
    return found.loss if found.metric is None else found.metric


def _metric(contender: Contender) -> float:
    found = contender.result.metric if contender.result is not None else None
    return math.nan if found is None else found
