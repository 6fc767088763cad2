"""Losses that are given probabilities for logits, or shapes that spread over each other."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributions import Normal
from torch.nn import functional as F

from outpace.measure.dispatch import OperatorWatch, name_of
from outpace.measure.loss_inputs import LossInputs

BATCH = 40

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


class Watch(OperatorWatch):  # type: ignore[no-untyped-call]
    def __init__(self) -> None:
        super().__init__()
        self.inputs, self.step = LossInputs(), 0

    def see(self, operator: Any, args: Any, kwargs: Any, out: Any) -> None:
        name = name_of(operator).rstrip("_")
        self.inputs.see(name, args, out, batch=BATCH, step=self.step)


def told(loss: Loss, times: int = 3, steps: bool = True) -> set[str]:
    """What is told of a loss of five outputs and labels; ``steps``: at each call another."""
    torch.manual_seed(0)
    watch, model = Watch(), nn.Linear(8, 5)
    with watch:
        for step in range(times):
            watch.step = step if steps else 0
            loss(model(torch.randn(BATCH, 8)), torch.randint(5, (BATCH,)))
    assert watch.failure is None
    kinds = ("softmax_twice", "sigmoid_twice", "crossed")
    return {kind for kind in kinds if watch.inputs.where(kind) is not None}


def hot(labels: torch.Tensor) -> torch.Tensor:
    return F.one_hot(labels, 5).float()


def in_half(loss: Loss) -> Loss:
    """Of a model whose output is in bfloat16, under autocast."""

    def cast(out: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return loss(out.bfloat16(), labels)

    return cast


def by_parts(out: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """As of a recurrent model's outputs, one after the other."""
    parts = [half.softmax(1) for half in out.split(BATCH // 2)]
    return F.cross_entropy(torch.stack(parts).flatten(0, 1), labels)


@pytest.mark.parametrize(
    ("loss", "found"),
    [
        (lambda out, y: F.cross_entropy(out.softmax(1), y), "softmax_twice"),
        (lambda out, y: F.nll_loss(F.log_softmax(out.softmax(-1), -1), y), "softmax_twice"),
        (lambda out, y: F.cross_entropy(out.softmax(1).clamp(1e-6, 1)[y > 0], y[y > 0]), "softmax_twice"),
        (in_half(lambda out, y: F.cross_entropy(out.softmax(1), y)), "softmax_twice"),
        (by_parts, "softmax_twice"),
        (lambda out, y: F.binary_cross_entropy_with_logits(out.sigmoid(), hot(y)), "sigmoid_twice"),
        (
            lambda out, y: F.binary_cross_entropy_with_logits(
                out.sigmoid().double().clamp(1e-7, 1 - 1e-7)[:, 0].view(-1, 1), hot(y)[:, :1].double()
            ),
            "sigmoid_twice",
        ),
        (
            in_half(lambda out, y: F.binary_cross_entropy_with_logits(out.sigmoid(), hot(y))),
            "sigmoid_twice",
        ),
        (lambda out, y: (out[:, :1] - y).square().mean(), "crossed"),
        (lambda out, y: ((y - out[:, :1]) ** 2).sum(1).mean(), "crossed"),
        (lambda out, y: (out[:, 0] - y.float().reshape(BATCH, 1).clone()).abs().mean(), "crossed"),
        (lambda out, y: (out[:, 0] - torch.zeros(3 * BATCH, 1)[BATCH : 2 * BATCH]).abs().mean(), "crossed"),
        (lambda out, y: F.l1_loss(out[:, 0], torch.zeros(BATCH, 1)), "crossed"),
        (lambda out, y: F.mse_loss(out[:, 0], y[:, None].float()), "crossed"),
        (lambda out, y: F.mse_loss(out[:, 0].unsqueeze(1), y.float()), "crossed"),
        (in_half(lambda out, y: F.mse_loss(out[:, :1], y.float())), "crossed"),
        (lambda out, y: F.l1_loss(out[:, :1], y), "crossed"),
        (in_half(lambda out, y: F.l1_loss(out[:, :1], y.float())), "crossed"),
        (lambda out, y: F.smooth_l1_loss(out[:, :1], y), "crossed"),
        (lambda out, y: -(Normal(out[:, :1], 1.0).log_prob(torch.zeros(BATCH, 1)) * y).mean(), "crossed"),
        (lambda out, y: (1 - (2 * (y > 2) - 1) * out[:, :1]).relu().mean(), "crossed"),
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:Using a target size")
def test_what_a_loss_should_not_be_given(loss: Loss, found: str) -> None:
    assert told(loss) == {found}
    assert told(loss, times=2) == set(), "it may be so by chance"
    assert told(loss, steps=False) == set(), "several calls of a step are one"


CHAIN = nn.Parameter(torch.full((8, 8), 1 / 8))


def of_two_columns(out: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Its other columns are logits still."""
    out = out.clone()
    out[:, :2].sigmoid_()
    return F.binary_cross_entropy_with_logits(out[:, 4], (labels > 2).float())


def of_bins(out: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """A soft histogram with as many bins as samples."""
    return torch.exp(-((out[:, :1] - torch.linspace(0, 1, BATCH)) ** 2)).sum(0).square().mean()


@pytest.mark.parametrize(
    "loss",
    [
        F.cross_entropy,
        lambda out, y: F.cross_entropy(0 * out, y),
        lambda out, y: F.nll_loss(out.softmax(1).log(), y),
        lambda out, y: F.log_softmax(CHAIN, 1).sum() + F.log_softmax(CHAIN * 1.0, 1).sum(),
        lambda out, y: F.log_softmax(0.2 + 0 * out, 1).sum(),
        lambda out, y: F.log_softmax(out.detach().softmax(1), 1).sum(),
        lambda out, y: F.binary_cross_entropy_with_logits(out, hot(y)),
        lambda out, y: F.binary_cross_entropy(out.sigmoid(), hot(y)),
        lambda out, y: F.binary_cross_entropy_with_logits(9 * out.sigmoid() - 4, hot(y)),
        of_two_columns,
        lambda out, y: F.mse_loss(out[:, 0], y.float()),
        lambda out, y: F.mse_loss(out, y[:, None].float().expand(-1, 5)),
        lambda out, y: (out[:, :1] - out[:, 0]).relu().mean(),
        lambda out, y: (out[:, :1] - torch.rand(BATCH)[None, :]).abs().mean(),
        lambda out, y: F.binary_cross_entropy_with_logits(out.abs() / 9, hot(y)),
        lambda out, y: F.log_softmax(out[:, 0], 0).sum(),
        lambda out, y: (out[:, 0] * (y[:, None] - y)).mean(),
        lambda out, y: (out[:, :, None] - torch.linspace(0, 1, BATCH)).square().mean(),
        lambda out, y: (out[:, 0].unsqueeze(1) - y).abs().mean(),
        lambda out, y: (out[:, 0].view(-1, 1) - y).abs().mean(),
        lambda out, y: (out[:, 0] - torch.randn(BATCH, 3)[:, 0].unsqueeze(1)).abs().mean(),
        lambda out, y: (out[:, 0] - torch.randn(BATCH, 1).squeeze(1).unsqueeze(1)).abs().mean(),
        lambda out, y: (out[:, 0].unsqueeze(1) - out[:, 0].detach()).sigmoid().sum(1).mean(),
        lambda out, y: (out[:, 0] - out[:, 0].detach()[:, None]).abs().mean(),
        of_bins,
        lambda out, y: ((out[:, :1] - y).abs() * torch.eye(BATCH)).mean(),
        lambda out, y: (out[:, 0][:, None] * y).mean(),
        lambda out, y: (out[:, :1] * torch.linspace(0, 1, BATCH)).sin().mean(),
    ],
)  # fmt: skip
def test_what_only_looks_like_it(loss: Loss) -> None:
    assert told(loss) == set()


def test_no_graph_of_a_sigmoid_is_held() -> None:
    watch, model = Watch(), nn.Linear(8, 5)
    with watch:
        hidden = model(torch.randn(BATCH, 8)).exp()
        out = hidden.sigmoid()
        F.binary_cross_entropy_with_logits(out, torch.zeros(BATCH, 5))
        (out[:, :1] - torch.zeros(BATCH)).abs().mean()
        held = [weakref.ref(each) for each in (hidden, out)]
        del hidden, out
        assert [each() for each in held] == [None, None]
    assert watch.failure is None
