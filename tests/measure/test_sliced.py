"""Slices whose gradients are as large as what they are of."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch

from outpace.measure.dispatch import OperatorWatch, name_of, phase
from outpace.measure.sliced import FEWEST, Sliced
from outpace.seams.where import user_frame


class Watch(OperatorWatch):  # type: ignore[no-untyped-call]
    def __init__(self) -> None:
        super().__init__()
        self.sliced = Sliced()

    def see(self, operator: Any, args: Any, kwargs: Any, out: Any) -> None:
        if phase() == "backward":
            self.sliced.see(name_of(operator), args, out, self.took_s)
        elif phase() == "forward":
            self.sliced.meet(name_of(operator), args, user_frame(sys._getframe(1)))


def selected(x: torch.Tensor) -> list[torch.Tensor]:
    return [x[:, t] for t in range(x.shape[1])]


def sliced(x: torch.Tensor) -> list[torch.Tensor]:
    return [x[:, t : t + 2].sum(1) for t in range(0, x.shape[1], 2)]


def unbound(x: torch.Tensor) -> list[torch.Tensor]:
    return list(x.unbind(1))


def few(x: torch.Tensor) -> list[torch.Tensor]:
    """As the first and the last position, or the halves of a rotary embedding."""
    return [x[:, 0], x[:, -1], x[:, :4].sum(1)]


def windows(x: torch.Tensor) -> list[torch.Tensor]:
    """They overlap: nothing gives them with one gradient."""
    return [x[:, t : t + 8].sum(1) for t in range(x.shape[1] - 8)]


def whole(x: torch.Tensor) -> list[torch.Tensor]:
    """Each turn takes all of it."""
    return [x[:, :].sum(1) for _ in range(12)]


@pytest.mark.parametrize(
    ("slices", "count"),
    [(selected, 32), (sliced, 16), (unbound, 0), (few, 0), (whole, 0), (windows, 0)],
)
def test_slices_of_a_loop(slices: Callable[[torch.Tensor], list[torch.Tensor]], count: int) -> None:
    x = torch.randn(4, 32, 8, requires_grad=True)
    with Watch() as watch:
        h = torch.zeros(4, 8)
        for each in slices(x * 1.0):
            h = torch.tanh(h + each)
        h.sum().backward()  # type: ignore[no-untyped-call]
    assert watch.failure is None
    found = watch.sliced.worst()
    assert (found is not None) is (count >= FEWEST)
    if found is not None:
        spared, seen, where = found
        made = sum(cut.seconds for cut in watch.sliced.cuts.values())
        assert spared > made * (1 - 1 / count), "sums are spared too"
        assert seen == count
        assert "test_sliced.py" in where


def test_what_the_loop_writes_to_cannot_be_unbound() -> None:
    """As the table of a forward algorithm: views that `unbind` gives bear no change in place."""

    class Forward(torch.nn.Module):
        def forward(self, scores: torch.Tensor) -> torch.Tensor:
            table = scores.new_zeros(scores.shape)
            table[0] = scores[0]
            for t in range(1, len(scores)):
                table[t] = table[t - 1] + 1
            return table

    model, scores = Forward(), torch.randn(2 * FEWEST, 4, 4, requires_grad=True)
    watch = Watch()
    with watch:
        out = model(scores)
        out.sum().backward()
    assert watch.sliced.worst() is None
