"""Losses that are given probabilities for logits, or shapes that spread over each other."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from outpace.measure.dispatch import OperatorWatch, name_of
from outpace.measure.loss_inputs import LossInputs

BATCH = 40


class Watch(OperatorWatch):  # type: ignore[no-untyped-call]
    def __init__(self) -> None:
        super().__init__()
        self.inputs = LossInputs()

    def see(self, operator: Any, args: Any, kwargs: Any, out: Any) -> None:
        self.inputs.see(name_of(operator).rstrip("_"), args, out, BATCH)


def told(loss: Any, times: int = 3) -> set[str]:
    torch.manual_seed(0)
    watch, model = Watch(), nn.Linear(8, 5)
    with watch:
        for _ in range(times):
            loss(model(torch.randn(BATCH, 8)), torch.randint(5, (BATCH,)))
    assert watch.failure is None
    kinds = ("softmax_twice", "sigmoid_twice", "crossed")
    return {kind for kind in kinds if watch.inputs.where(kind) is not None}


@pytest.mark.parametrize(
    ("loss", "found"),
    [
        (lambda out, y: F.cross_entropy(out.softmax(1), y), "softmax_twice"),
        (lambda out, y: F.nll_loss(F.log_softmax(out.softmax(-1), -1), y), "softmax_twice"),
        (
            lambda out, y: F.binary_cross_entropy_with_logits(out.sigmoid(), F.one_hot(y, 5).float()),
            "sigmoid_twice",
        ),
        (lambda out, y: (out[:, :1] - y).square().mean(), "crossed"),
        (lambda out, y: F.mse_loss(out[:, 0], y[:, None].float()), "crossed"),
        (lambda out, y: F.l1_loss(out[:, :1], y), "crossed"),
        (lambda out, y: F.smooth_l1_loss(out[:, :1], y), "crossed"),
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:Using a target size")
def test_what_a_loss_should_not_be_given(loss: Any, found: str) -> None:
    assert told(loss) == {found}
    assert told(loss, times=2) == set(), "it may be so by chance"


@pytest.mark.parametrize(
    "loss",
    [
        F.cross_entropy,
        lambda out, y: F.cross_entropy(0 * out, y),
        lambda out, y: F.nll_loss(out.softmax(1).log(), y),
        lambda out, y: F.binary_cross_entropy_with_logits(out, F.one_hot(y, 5).float()),
        lambda out, y: F.binary_cross_entropy(out.sigmoid(), F.one_hot(y, 5).float()),
        lambda out, y: F.mse_loss(out[:, 0], y.float()),
        lambda out, y: F.mse_loss(out, y[:, None].float().expand(-1, 5)),
        lambda out, y: (out[:, :1] - out[:, 0]).relu().mean(),
        lambda out, y: (out[:, :1] - torch.rand(BATCH)[None, :]).abs().mean(),
        lambda out, y: F.binary_cross_entropy_with_logits(out.abs() / 9, F.one_hot(y, 5).float()),
        lambda out, y: F.log_softmax(out[:, 0], 0).sum(),
        lambda out, y: (out[:, 0] * (y[:, None] - y)).mean(),
        lambda out, y: (out[:, :, None] - torch.linspace(0, 1, BATCH)).square().mean(),
    ],
)
def test_what_only_looks_like_it(loss: Any) -> None:
    assert told(loss) == set()
