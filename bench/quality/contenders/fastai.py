"""fastai: lr_find, then fit_one_cycle over as many epochs as the budget holds by its own pace."""

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
    data: Any = DataLoaders(race.loader(), [])
    learner = Learner(data, race.model, loss_func=race.work.loss)
    with learner.no_bar(), learner.no_logging():
        rate = learner.lr_find(show_plot=False).valley
        found_s = race.elapsed_s
        step_s = found_s / len(learner.recorder.losses)
        race.judge(race.model, 0)
        epoch_s = len(data.train) * (step_s + race.judging_s / race.work.every)
        epochs = max(1, int(race.left_s / epoch_s))
        race.notes.append(f"lr_find: rate {rate:.2g} in {found_s:.1f} s; {epochs} epochs")
        learner.fit_one_cycle(epochs, rate, cbs=Look(race))
    race.judge(race.model, epochs * len(data.train))
