"""Metrics of all samples together, by their names."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from outpace.train.better import is_of_whole
from outpace.train.objective import Objective
from outpace.train.whole_metric import WholeMetric
from tests.train.toys import CLASSES, accuracy, fit, points, ready

X = torch.linspace(-1.0, 1.0, 65)[:, None]
Y = 2.0 * X + 0.1 * torch.sin(20.0 * X)


def r2_score(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    spread = (targets - targets.mean()).square().sum()
    return 1 - (outputs - targets).square().sum() / spread


def macro_recall(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    told = outputs.argmax(1)
    return torch.stack([(told[targets == c] == c).float().mean() for c in range(CLASSES)]).mean()


@pytest.mark.parametrize(
    ("name", "whole"),
    [
        *((name, True) for name in ("r2", "R2Score", "f1", "macro_f1", "rocAUC", "recall_at_5")),
        *((name, True) for name in ("average_precision", "pearson_corr", "MatthewsCorr", "fBeta")),
        *((name, False) for name in ("accuracy", "l1_loss", "bleu", "mae", "corrupted", "iou")),
    ],
)
def test_which_names_tell_of_one(name: str, whole: bool) -> None:
    def metric(outputs: Any, targets: Any) -> float:
        return 0.0

    metric.__name__ = name
    assert is_of_whole(metric) is whole


def test_it_is_called_on_all_samples_though_the_last_batch_has_one() -> None:
    torch.manual_seed(0)
    net = nn.Linear(1, 1)
    batches = list(zip(X.split(16), Y.split(16), strict=True))
    assert len(batches[-1][0]) == 1
    found = Objective(F.mse_loss, r2_score).judge(net, batches)
    assert found.metric == pytest.approx(float(r2_score(net(X).detach(), Y)), rel=1e-5)
    assert found.measured == 65


def test_batches_of_one_class_each() -> None:
    x, y = points(240)
    order = y.argsort()
    net = nn.Linear(8, CLASSES)
    batches = list(zip(x[order].split(24), y[order].split(24), strict=True))
    objective = Objective(F.cross_entropy, macro_recall)
    assert objective.judge(net, batches).metric == pytest.approx(
        float(macro_recall(net(x).detach(), y))
    )
    assert not objective.averaged


@pytest.mark.parametrize("way", ["lengths differ", "too much", "no tensor"])
def test_what_cannot_be_joined_is_averaged(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if way == "too much":
        monkeypatch.setattr("outpace.train.whole_metric.MOST_BYTES", 100)
    lengths = (4, 5, 6) if way == "lengths differ" else (4, 4, 4)
    whole = WholeMetric(lambda outputs, targets: len(outputs[0]))
    for length in lengths:
        outputs: Any = torch.zeros(3, length)
        whole.add((outputs,) if way == "no tensor" else outputs, torch.zeros(3))
    assert whole.apart
    assert whole.values() == ([3, 3, 3] if way == "no tensor" else list(lengths))


def test_an_averaged_one_is_told() -> None:
    def f1(outputs: Any, targets: torch.Tensor) -> torch.Tensor:
        return accuracy(outputs[0], targets)

    class Pair(nn.Linear):
        def forward(self, x: torch.Tensor) -> Any:
            return (super().forward(x),)

    def loss(outputs: Any, targets: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(outputs[0], targets)

    result = fit(model=Pair(8, CLASSES), loss=loss, metric=f1, epochs=1)
    assert any("one of all samples together" in note for note in result.notes)


def test_a_batch_that_a_metric_gives_no_number_for_is_left_out_and_told() -> None:
    def spread(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return outputs.std(0).mean() if len(targets) > 1 else torch.tensor(math.nan)

    x, y = points(49, seed=1)
    valid = list(zip(x.split(24), y.split(24), strict=True))
    result = fit(metric=spread, valid=valid, epochs=1)
    assert result.metric is not None
    assert math.isfinite(result.metric)
    assert any("no number for some batches" in note for note in result.notes)
    assert not any(
        "no number" in note for note in fit(metric=spread, valid=ready(), epochs=1).notes
    )
