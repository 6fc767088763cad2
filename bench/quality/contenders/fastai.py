"""fastai: lr_find, then fit_one_cycle over as many steps as the budget holds by the pace of those of lr_find.

Its cycle is over whole epochs, of which some budgets hold less than one: the steps are given as one epoch.
"""

import itertools
from collections.abc import Iterator
from statistics import median
from typing import Any

from fastai.basics import (
    Callback,
    CancelFitException,
    CancelValidException,
    DataLoaders,
    Learner,
)
from fastai.callback import schedule  # noqa: F401, gives the Learner both methods
from race import Race


class Pace(Callback):
    """Notes when steps have ended."""

    def __init__(self, race: Race) -> None:
        self.race = race
        self.ended: list[float] = []

    def after_batch(self) -> None:
        """After each step."""
        self.ended.append(self.race.elapsed_s)

    @property
    def step_s(self) -> float:
        """Of the median step, the next batch included."""
        return median(later - one for one, later in itertools.pairwise(self.ended))


class Steps:
    """So many batches of a loader, which is gone through again and again."""

    def __init__(self, loader: Any, count: int) -> None:
        self.loader, self.count = loader, count

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Any]:
        batches = itertools.chain.from_iterable(itertools.repeat(self.loader))
        return itertools.islice(batches, self.count)


class Look(Callback):
    """Validates instead of the Learner, and ends training."""

    def __init__(self, race: Race) -> None:
        self.race = race

    def after_batch(self) -> None:
        """After each step."""
        if self.training and self.race.look(self.model, self.train_iter):
            raise CancelFitException

    def before_validate(self) -> None:
        """The same validation is not made twice."""
        raise CancelValidException


def train(race: Race) -> None:
    """Find the rate, and fit."""
    loader, pace = race.loader(), Pace(race)
    data: Any = DataLoaders(loader, [])
    learner = Learner(data, race.model, loss_func=race.work.loss)
    with learner.no_bar(), learner.no_logging():
        learner.add_cb(pace)
        rate = learner.lr_find(show_plot=False).valley
        learner.remove_cb(pace)
        found_s = race.elapsed_s
        race.judge(race.model, 0)
        steps = max(1, int(race.left_s / (pace.step_s + race.judging_s / race.work.every)))
        race.notes.append(
            f"lr_find: rate {rate:.2g} in {found_s:.1f} s; one cycle of {steps} steps"
        )
        learner.dls = DataLoaders(Steps(loader, steps), [])
        learner.fit_one_cycle(1, rate, cbs=Look(race))
    race.judge(race.model, learner.train_iter)
