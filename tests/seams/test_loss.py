"""What backward is called on is the loss, as the script reckons it."""

from __future__ import annotations

import pytest
import torch
from tests.remedies.trainings import hosted
from torch.amp import GradScaler

from outpace.seams.host import MOST_PENDING
from outpace.seams.loss import scalar


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


def test_losses_of_a_step_that_a_scaler_skips_are_not_the_next_steps() -> None:
    original = GradScaler.update
    weight = torch.nn.Parameter(torch.ones(()))
    optimizer = torch.optim.SGD([weight], 0.1)
    scaler = GradScaler("cpu", init_scale=8.0)
    told: list[float] = []
    with hosted() as host:
        host.on_loss = lambda _, loss: told.append(float(loss))
        for factor in (1.0, float("inf"), float("inf"), 2.0, 3.0):
            optimizer.zero_grad()
            loss = weight * factor
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            if factor < 2.0:
                wanted = [loss.item()]
            elif factor < 9.0:
                wanted.append(loss.item())
        assert host.steps == 3
    assert told == pytest.approx(wanted)
    assert GradScaler.update is original


def test_an_optimizer_that_steps_more_often_than_the_first_one_skips_nothing() -> None:
    first, second = (torch.nn.Parameter(torch.ones(())) for _ in range(2))
    one, other = torch.optim.SGD([first], 0.1), torch.optim.SGD([second], 0.1)
    scaler = GradScaler("cpu", init_scale=8.0)
    told: list[float] = []
    with hosted() as host:
        host.on_loss = lambda _, loss: told.append(float(loss))
        for turn in range(6):
            weight, optimizer = (first, one) if turn % 3 == 0 else (second, other)
            scaler.scale(weight * 0 + 1.0).backward()
            scaler.step(optimizer)
            scaler.update()
    assert told == [1.0, 3.0]


def test_backward_passes_of_a_script_that_steps_no_more_pile_nothing_up() -> None:
    """As of saliency maps, by the hundred thousand, once it is trained."""
    weight = torch.nn.Parameter(torch.ones(()))
    optimizer = torch.optim.SGD([weight], 0.1)
    for wanted in (False, True):
        with hosted() as host:
            host.on_loss = (lambda *_: None) if wanted else None
            for turn in range(MOST_PENDING + 100):
                (weight * 1.0).backward()
                if turn == 3:
                    optimizer.step()
            assert len(host.pending) == (MOST_PENDING if wanted else 0)


@pytest.mark.gpu
def test_a_loss_in_memory_that_a_graph_uses_again_is_kept() -> None:
    loss = torch.ones((), device="cuda")
    kept = scalar(loss)
    loss.fill_(2.0)
    assert kept is not None
    assert float(kept) == 1.0
