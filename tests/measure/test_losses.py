"""Losses are kept as numbers, in their order, and none of a CPU's tensors is held on to."""

from __future__ import annotations

import math
import weakref

import torch

from outpace.measure.losses import Losses


def test_a_cpu_loss_is_read_at_once() -> None:
    losses = Losses()
    tensor = torch.tensor(0.5)
    held = weakref.ref(tensor)
    losses.add(32, tensor)
    del tensor
    assert held() is None, "a small tensor that is kept splits the heap for good"
    losses.add(64, torch.tensor(0.25, dtype=torch.float64))
    assert losses.read() == ([32, 64], [0.5, 0.25])


def test_the_first_loss_that_is_not_a_number() -> None:
    losses = Losses()
    for step, value in enumerate((1.0, 2.0, math.nan, 1.0)):
        losses.add(step, torch.tensor(value))
    assert losses.first_bad() == 2
