"""What backward is called on is the loss, as the script reckons it."""

from __future__ import annotations

import pytest
import torch
from tests.remedies.trainings import hosted
from torch.amp import GradScaler


@pytest.mark.parametrize("enabled", [True, False])
def test_a_scaled_loss_is_told_as_it_was_before(enabled: bool) -> None:
    original = GradScaler.scale
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    scaler = GradScaler("cpu", init_scale=1024.0, enabled=enabled)
    told: list[torch.Tensor] = []
    wanted = []
    with hosted() as host:
        host.on_loss = lambda _, loss: told.append(loss)
        for _ in range(4):
            optimizer.zero_grad()
            losses = [model(torch.randn(8, 4)).square().mean() for _ in range(2)]
            for loss in losses:
                scaler.scale(loss / 2).backward()
            scaler.step(optimizer)
            scaler.update()
            wanted.append(sum(loss.item() for loss in losses) / 2)
    assert [float(loss) for loss in told] == pytest.approx(wanted)
    assert GradScaler.scale is original


def test_the_sum_of_what_was_scaled_is_told_as_it_is() -> None:
    weight = torch.nn.Parameter(torch.ones(1))
    scaler = GradScaler("cpu", init_scale=4.0)
    told: list[torch.Tensor] = []
    with hosted() as host:
        host.on_backward = told.append
        (scaler.scale(weight.sum()) + 1).backward()
    assert [float(loss) for loss in told] == [5.0]
