"""Calls in training mode without gradients: a mistake in a validation, none where statistics are taken."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from tests.remedies.trainings import hosted
from torch import nn
from torch.optim.swa_utils import update_bn
from torch.utils.data import DataLoader, TensorDataset

from outpace.seams.module import ModuleSeam

Loader = DataLoader[tuple[torch.Tensor, ...]]


def loader(batches: int) -> Loader:
    return DataLoader(TensorDataset(torch.randn(4 * batches, 4)), batch_size=4)


def statistics(model: nn.Module, train: Loader, valid: Loader) -> None:
    update_bn(train, model)


def whole(model: nn.Module, train: Loader, valid: Loader) -> None:
    with torch.no_grad():
        model(torch.randn(8, 4))


def by_batches(model: nn.Module, train: Loader, valid: Loader) -> None:
    with torch.no_grad():
        for (x,) in valid:
            model(x)


@pytest.mark.parametrize(
    ("after", "told"),
    [(statistics, 0), (whole, 2), (by_batches, 4)],
    ids=["bn", "whole", "batches"],
)
@pytest.mark.parametrize("accumulated", [1, 3])
def test_only_what_judges_is_a_validation_in_training_mode(
    after: Callable[[nn.Module, Loader, Loader], None], told: int, accumulated: int
) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    train, valid = loader(16), loader(2)
    with hosted() as host:
        for _ in range(2):
            for index, (x,) in enumerate(train):
                model(x).square().mean().backward()
                if (index + 1) % accumulated == 0:
                    optimizer.step()
                    optimizer.zero_grad()
            after(model, train, valid)
        seam = host.seams["module"]
        assert isinstance(seam, ModuleSeam)
        assert seam.evaluations().in_training == told
