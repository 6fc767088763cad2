"""The newest loss is told, and no device is waited for."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from outpace.plan import newest_loss
from outpace.plan.newest_loss import NewestLoss


def test_the_newest_is_told() -> None:
    losses = NewestLoss()
    assert losses.read() is None
    losses.keep(4, torch.tensor(0.5))
    losses.keep(8, torch.tensor(0.25))
    assert losses.read() == 0.25


class OnDevice:
    """Stands for a tensor on a GPU, whose value is there once its copy's event has passed."""

    is_cuda = True

    def __init__(self, value: float) -> None:
        self.value, self.passed = value, False

    def __float__(self) -> float:
        raise AssertionError("the device is waited for")

    def query(self) -> bool:
        return self.passed


def test_a_device_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def copy(loss: Any) -> tuple[torch.Tensor, Any]:
        return torch.tensor(loss.value), loss

    monkeypatch.setattr(newest_loss, "begin_copy", copy)
    losses: Any = NewestLoss()
    one, other = OnDevice(0.5), OnDevice(0.25)
    losses.keep(4, one)
    assert losses.read() is None
    losses.keep(8, other)
    assert losses.read() is None
    one.passed = True
    assert losses.read() == 0.5
    other.passed = True
    assert losses.read() == 0.25


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_gpu_is_not_waited_for() -> None:
    losses = NewestLoss()
    loss = torch.full((), 0.5, device="cuda")
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        losses.keep(4, loss)
        assert losses.read() is None
        while losses.read() is None:
            pass
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert losses.read() == 0.5
