"""Validations are tried before the training, and fit into a budget."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from outpace.serve.loader import Loader
from outpace.train.data import Batches
from outpace.train.judged_first import fewer, judge_by
from outpace.train.run import Run
from outpace.train.strategies import Constant
from tests.train.toys import Slow, Time, accuracy, fit, model, points, ready, same

CPU = torch.device("cpu")


class Steps:
    """Made by a training."""

    count = 0

    def step_end(self, run: Run) -> None:
        self.count = run.step


def broken(outputs: torch.Tensor, targets: torch.Tensor) -> float:
    raise TypeError("can't convert cuda:0 device type tensor to numpy")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"metric": broken}, "can't convert"),
        ({"valid": [(torch.randn(4, 5), torch.zeros(4).long())]}, "shapes cannot be multiplied"),
    ],
)
def test_what_a_validation_cannot_do_is_told_before_the_first_step(
    given: dict[str, Any], said: str
) -> None:
    steps = Steps()
    with pytest.raises((TypeError, RuntimeError), match=said):
        fit(strategies=[Constant()], callbacks=[steps], **given)
    assert steps.count == 0


def test_one_batch_with_too_little_in_it_is_no_mistake() -> None:
    def auc(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        if len(targets.unique()) < 2:
            raise ValueError("Only one class is present in y_true")
        return accuracy(outputs, targets)

    x, y = points(120, seed=1)
    order = y.argsort()
    valid = list(zip(x[order].split(12), y[order].split(12), strict=True))
    result = fit(metric=auc, valid=valid, epochs=1)
    assert result.metric is not None


def test_the_training_is_the_same_as_without() -> None:
    def trained(**given: Any) -> Any:
        return fit(model=model(dropout=0.3, norm=True), **given).history[-1].train_loss

    assert same(trained(), trained(valid=None, metric=None))


def test_all_judge_where_that_fits_and_part_of_them_where_not() -> None:
    notes = list[str]()

    def judges(budget_s: float, whole: int | None = 10) -> int | None:
        clock = SimpleNamespace(seconds=budget_s)
        run: Any = SimpleNamespace(clock=clock, world=1, note=notes.append)
        return fewer(run, whole, 0.1)

    assert judges(float("inf")) is judges(10.0) is None
    assert not notes
    assert judges(4.0) == 4
    assert "4 of its 10 batches" in notes[0]
    assert judges(4.0, whole=None) == 4, "of a stream, which may be endless"
    valid = Batches(ready(240), CPU)
    judge_by(valid, 4)
    for _ in range(2):
        assert len(list(valid.epoch())) == valid.whole == 4


def test_samples_at_equal_distances_judge() -> None:
    valid = Batches(Loader([(i,) for i in range(100)], 5, shuffle=False), CPU, own=True)
    judge_by(valid, 4)
    for _ in range(3):
        seen = torch.cat([batch[0] for batch in valid.epoch()]).tolist()
        assert len(seen) == 20
        assert (seen[0], seen[-1]) == (0, 99)
        assert {b - a for a, b in itertools.pairwise(seen)} <= {5, 6}
    assert valid.whole == 4


def test_a_part_of_a_users_loader_is_its_first_batches_each_time() -> None:
    valid = Batches(Loader([(i,) for i in range(100)], 5, shuffle=False), CPU)
    judge_by(valid, 3)
    for _ in range(3):
        assert torch.cat([batch[0] for batch in valid.epoch()]).tolist() == list(range(15))


class Judged(Slow):
    """Batches whose validation takes long; to look at two of them takes no time."""

    looked = False

    def __iter__(self) -> Iterator[Any]:
        if not self.looked:
            self.looked = True
            return iter(self.batches)
        return super().__iter__()


def test_validations_take_a_fifth_of_a_budget_at_the_most() -> None:
    time = Time()
    train = Slow(ready(48), time, 1.0)
    valid = Judged(ready(120, seed=1), time, 4.0)  # 5 batches
    result = fit(
        train=train,
        valid=valid,
        strategies=[Constant()],
        budget=1000.0,
        epochs=None,
        now=time,
    )
    assert 20.0 * len(result.history) <= 0.2 * result.seconds + 2 * 20.0
    assert len(result.history) >= 5
    assert result.stopped == "budget"
    assert result.seconds <= 1000.0


def test_without_a_budget_each_epochs_end_is_judged() -> None:
    time = Time()
    result = fit(
        train=Slow(ready(48), time, 1.0),
        valid=Slow(ready(120, seed=1), time, 4.0),
        strategies=[Constant()],
        epochs=6,
        now=time,
        loss=F.cross_entropy,
    )
    assert len(result.history) == 6
