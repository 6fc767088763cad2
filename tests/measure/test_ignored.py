"""What is computed for targets that a loss ignores."""

from __future__ import annotations

import sys

import pytest
import torch
from torch.nn import functional as F

from outpace.measure.dispatch import OperatorWatch, name_of
from outpace.measure.ignored import FEWEST, Ignored


class Watch(OperatorWatch):  # type: ignore[misc,no-untyped-call]
    """Each operator is said to take a second."""

    def __init__(self) -> None:
        super().__init__()
        self.found = Ignored()

    def see(self, operator, args, kwargs, out) -> None:  # type: ignore[no-untyped-def]
        self.found.see(name_of(operator), args, out, 1.0, sys._getframe())


def of_loss(vocabulary: int, ignored: int, learnt: bool = True) -> Ignored:
    torch.manual_seed(0)
    hidden = torch.randn(64, 16, requires_grad=learnt)
    weight = torch.randn(vocabulary, 16, requires_grad=True)
    targets = torch.randint(0, vocabulary, (64,))
    targets[:ignored] = -100
    watch = Watch()
    with watch:
        loss = F.cross_entropy(F.linear(hidden, weight), targets)
        loss.backward()
    return watch.found


def test_the_output_layer_the_loss_and_their_gradients_count() -> None:
    found = of_loss(5000, 48)
    assert found.share == pytest.approx(0.75)
    # The layer, log_softmax, the loss; backwards these two, and both products of the layer.
    assert found.seconds >= 0.75 * 7
    assert found.where is not None


def test_where_none_is_ignored_nothing_is_spared() -> None:
    found = of_loss(5000, 0)
    assert (found.share, found.seconds) == (0.0, 0.0)


def test_few_scores_are_not_looked_at() -> None:
    assert FEWEST > 64 * 100
    assert of_loss(100, 48).seconds == 0.0
