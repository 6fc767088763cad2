"""dropout_off: how dropout fades, what it gives, and what it leaves."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from outpace.errors import UsageError
from outpace.train.run import Run
from outpace.train.strategies import DropoutOff, OneCycle, Strategy
from outpace.train.strategies.dropout_off import dropped
from tests.train.toys import Slow, Time, fit, model, ready


class Shares:
    """The dropout that each step is made with, and what the model has at the end."""

    def __init__(self) -> None:
        self.steps: list[float] = []

    def batch(self, run: Run, batch: Any) -> None:
        assert isinstance(run.module, nn.Sequential)
        dropout = run.module[2]
        assert isinstance(dropout, nn.Dropout)
        self.steps.append(dropout.p)


def shares(strategy: Strategy, **given: Any) -> list[float]:
    seen = Shares()
    fit(
        **{
            "model": model(dropout=0.4),
            "strategies": [strategy, OneCycle(rate=0.01)],
            "callbacks": [seen],
            "epochs": 10,
            **given,
        }
    )
    return seen.steps


def test_it_falls_in_ten_steps_and_is_over_in_time() -> None:
    net = model(dropout=0.4)
    steps = shares(DropoutOff(0.5), model=net)
    assert len(steps) == 100
    assert steps[0] == 0.4
    assert steps == sorted(steps, reverse=True)
    assert sorted(set(steps)) == pytest.approx([0.04 * i for i in range(11)])
    assert steps[49] > 0.0
    assert set(steps[50:]) == {0.0}
    assert net[2].p == 0.4  # as it came


def test_it_is_off_from_the_first_step_on() -> None:
    assert set(shares(DropoutOff(0.0))) == {0.0}


def test_it_falls_with_the_time_of_a_budget() -> None:
    time = Time()
    train = Slow(ready(), time, lambda: 0.5 if time.s < 150.0 else 1.0)
    given = {"train": train, "valid": None, "metric": None, "epochs": None}
    steps = shares(DropoutOff(0.5), budget=100.0, now=time, **given)
    assert steps.index(0.0) == pytest.approx(100, abs=3)


def test_all_kinds_of_dropout_are_found() -> None:
    net = nn.ModuleList(
        [
            nn.Dropout2d(0.1),
            nn.AlphaDropout(0.2),
            nn.GRU(4, 4, num_layers=2, dropout=0.3),
            nn.MultiheadAttention(4, 2, dropout=0.4),
            nn.TransformerEncoderLayer(4, 2, 8, dropout=0.5),
            nn.Dropout(0.0),
        ]
    )
    found = [each.share for each in dropped(net)]
    assert sorted(found) == [0.1, 0.2, 0.3, 0.4, 0.5, 0.5, 0.5, 0.5]
    net[2](torch.zeros(1, 1, 4))


def test_a_model_without_dropout_is_told() -> None:
    with pytest.raises(UsageError, match="the model's layers drop nothing"):
        fit(strategies=["dropout_off"])


def test_in_few_epochs_more_is_learnt_without() -> None:
    losses = []
    for strategies in ([], [DropoutOff()], [DropoutOff(0.0)]):
        row = fit(
            model=model(dropout=0.5), strategies=[*strategies, OneCycle(rate=0.03)], epochs=4
        ).history[-1]
        losses.append(row.valid_loss or 0.0)
    kept, faded, off = losses
    assert faded < 0.9 * kept
    assert off < 0.9 * kept
