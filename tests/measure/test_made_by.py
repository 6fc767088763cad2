"""Which functions made a tensor's numbers."""

from __future__ import annotations

import torch

from outpace.measure.made_by import MOST, kind, made_by


def test_functions_are_named_by_what_they_do() -> None:
    x = torch.randn(4, 2, requires_grad=True)
    made = torch.stack([x.sigmoid()[:, 0], x.exp()[:, 1]]).clone()
    nearest = made_by(made, lambda one: kind(one) in {"Clone", "Stack", "Select"})
    assert sorted(map(kind, nearest)) == ["Exp", "Sigmoid"]
    assert made_by(x, lambda one: True) == []
    assert made_by(made.detach(), lambda one: True) == []


def test_of_a_long_graph_the_nearest_part_is_looked_at() -> None:
    x = torch.zeros(2, requires_grad=True).sigmoid()
    for _ in range(MOST):
        x = x + x
    assert made_by(x, lambda one: kind(one) == "Add") == []
