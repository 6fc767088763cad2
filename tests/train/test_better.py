"""Whether a larger metric is better, where the user does not say."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from outpace.errors import UsageError
from outpace.train.better import NOT_TOLD, SMALLER, larger_is_better
from tests.train.toys import accuracy, fit, trainer


def named(name: str) -> Any:
    """A function of that name."""

    def metric(outputs: torch.Tensor, targets: torch.Tensor) -> float:
        return float(accuracy(outputs, targets))

    metric.__name__ = name
    return metric


class MyMAE:
    """No word of its name stands alone."""

    def __call__(self, outputs: torch.Tensor, targets: torch.Tensor) -> float:
        return 1.0 - float(accuracy(outputs, targets))


class Says:
    """As metrics of torchmetrics do."""

    def __init__(self, higher_is_better: bool | None) -> None:
        self.higher_is_better = higher_is_better

    def __call__(self, outputs: torch.Tensor, targets: torch.Tensor) -> float:
        return 0.0


@pytest.mark.parametrize(
    ("metric", "larger"),
    [
        (F.l1_loss, False),
        (F.cross_entropy, False),
        (partial(F.cross_entropy, label_smoothing=0.1), False),
        (nn.MSELoss(), False),
        (MyMAE(), False),
        (named("word_error_rate"), False),
        (named("brier_score"), False),
        (accuracy, True),
        (named("accuracy_per_class"), True),
        (named("mean_IoU"), True),
        (named("negative_log_likelihood"), False),
        (named("neg_log_likelihood"), False),
        (named("log_likelihood"), True),
        (named("NegativeLogLikelihood"), False),
        (named("MyLogLikelihood"), True),
        (named("brier_skill_score"), True),
        (named("d2_absolute_error_score"), True),
        (named("distance_correlation"), True),
        (Says(False), False),
        (Says(True), True),
    ],
)
def test_the_metric_or_its_name_tells(metric: Any, larger: bool) -> None:
    assert larger_is_better(metric, None) == (larger, "")
    assert larger_is_better(metric, not larger) == (not larger, "")


@pytest.mark.parametrize(
    "metric", [named("wobble"), named("neg_mean_squared_error"), Says(None), lambda *_: 0.0]
)
def test_where_nothing_tells_larger_is_better_and_that_is_said(metric: Any) -> None:
    assert larger_is_better(metric, None) == (True, NOT_TOLD)
    assert larger_is_better(metric, False) == (False, "")
    result = fit(metric=metric, epochs=2)
    assert result.notes.count(NOT_TOLD) == 1
    for given in ({"larger_is_better": True}, {"valid": None}):
        assert NOT_TOLD not in fit(metric=metric, epochs=2, **given).notes


@pytest.mark.parametrize("name", ["accuracy_drop", "generalization_gap"])
def test_a_fall_is_better_the_smaller_it_is_and_that_is_said(name: str) -> None:
    assert larger_is_better(named(name), None) == (False, SMALLER)
    assert larger_is_better(named(name), True) == (True, "")


@pytest.mark.parametrize("name", ["f1_negative", "recall_negative", "drop_f1", "gap"])
def test_the_name_of_a_class_or_a_benchmark_turns_nothing(name: str) -> None:
    assert larger_is_better(named(name), None) == (True, NOT_TOLD)


def test_without_a_metric_there_is_nothing_to_say() -> None:
    assert NOT_TOLD not in fit(metric=None).notes


def test_what_is_neither_is_refused() -> None:
    with pytest.raises(UsageError, match="larger_is_better=1"):
        trainer(larger_is_better=1)


def test_the_smallest_loss_is_kept_and_is_the_target() -> None:
    result = fit(metric=F.cross_entropy, target=0.6, epochs=50)
    values = [row.metric or 0.0 for row in result.history]
    assert values[0] > 0.6
    assert result.stopped == "target"
    assert result.metric == min(values) <= 0.6


@pytest.mark.parametrize("name", ["interval_score", "energy_score", "my_score"])
def test_a_score_may_be_a_cost_and_what_it_is_taken_for_is_said(name: str) -> None:
    larger, said = larger_is_better(named(name), None)
    assert larger
    assert "larger_is_better=False" in said
    assert larger_is_better(named(name), False) == (False, "")


@pytest.mark.parametrize("name", ["imprecision", "access_time", "accumulated_cost", "f"])
def test_parts_of_other_words_tell_nothing(name: str) -> None:
    assert larger_is_better(named(name), None) == (True, NOT_TOLD)
