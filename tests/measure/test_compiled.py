"""Compilations are counted, and those that changing shapes make necessary are told apart."""

from __future__ import annotations

import torch

from outpace.measure.compiled import compiled_again, graphs_compiled


def test_a_new_shape_compiles_again() -> None:
    torch._dynamo.reset()
    double = torch.compile(lambda x: (x + x).relu(), backend="eager")
    rounds = []
    for length in (4, 4, 5):
        double(torch.ones(length))
        rounds.append(graphs_compiled())
    assert compiled_again(rounds[:2]) == 0
    assert compiled_again(rounds) == 1
    assert compiled_again([]) == 0
