"""Compilations are counted, and those that changing shapes make necessary are told apart."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from tests.conftest import plainly

from outpace.seams.compiled import compiled_again

SCRIPT = """
    import json
    import torch
    from outpace.seams.compiled import graphs_compiled
    double = torch.compile(lambda x: (x + x).relu(), backend="eager")
    rounds = [graphs_compiled()]
    for length in (4, 4, 5):
        double(torch.ones(length))
        rounds.append(graphs_compiled())
    print(json.dumps(rounds))
    """


def test_a_new_shape_compiles_again(script: Callable[..., Path]) -> None:
    done = plainly(script(SCRIPT))
    before, *rounds = json.loads(done.stdout)
    assert before == 0
    assert compiled_again(rounds[:2]) == 0
    assert compiled_again(rounds) == 1
    assert compiled_again([]) == 0
