"""A target is seen soon after it is reached, and looking for it costs little."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, IterableDataset

from outpace.train.strategies import Constant, Plateau
from outpace.train.trials import FORWARD
from tests.train.toys import fit


def long_epoch(batches: int = 3000) -> list[Any]:
    """Batches of a line with noise."""
    chance = torch.Generator().manual_seed(0)
    x = torch.randn(batches, 8, 4, generator=chance)
    y = x.sum(2, keepdim=True) + 0.1 * torch.randn(batches, 8, 1, generator=chance)
    return list(zip(x, y, strict=True))


def trained(valid: int, **given: Any) -> Any:
    torch.manual_seed(0)
    return fit(
        **{
            "model": nn.Linear(4, 1),
            "train": long_epoch(),
            "valid": long_epoch(valid),
            "loss": F.mse_loss,
            "metric": None,
            "target": 0.05,
            "epochs": 2,
            "strategies": [Constant(rate=5e-4)],
            **given,
        }
    )


@pytest.mark.parametrize("valid", [4, 40])
def test_within_a_long_epoch_a_target_is_looked_for(valid: int) -> None:
    result = trained(valid)
    assert result.stopped == "target"
    assert 100 < result.steps < 2900
    steps = [row.step for row in result.history]
    exact = trained(valid, validate_every=10).steps
    late = max(50, 20 * FORWARD * valid, 0.04 * exact)
    assert exact <= result.steps <= exact + 1.1 * late + 10
    assert min(b - a for a, b in zip([0, *steps], steps, strict=False)) >= 50


def test_it_is_looked_for_when_that_was_asked_for() -> None:
    rows = trained(4, validate_every=1000, target=1e-9, epochs=1).history
    assert [row.step for row in rows] == [1000, 2000, 3000]
    rows = trained(4, target=None, epochs=1).history
    assert [row.step for row in rows] == [3000]


def test_who_counts_in_validations_has_one_an_epoch() -> None:
    rows = trained(4, target=1e-9, strategies=[Plateau(rate=0.003)]).history
    assert [row.step for row in rows] == [3000, 6000]


class Endless(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        while True:
            yield from (sample for x, y in long_epoch(4) for sample in zip(x, y, strict=True))


@pytest.mark.parametrize("strategies", ["auto", ["auto", "early_stopping"]])
def test_an_epoch_without_an_end_is_ended_by_it_too(strategies: Any) -> None:
    """Also where others count in validations, of which there would be none."""
    stream = DataLoader(Endless(), batch_size=8)
    result = trained(4, train=stream, epochs=None, target=0.3, strategies=strategies)
    assert result.stopped == "target"
    assert len(result.history) >= 1
