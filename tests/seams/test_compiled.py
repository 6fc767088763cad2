"""Compilations are counted, and those that changing shapes make necessary are told apart."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.conftest import outpace, plainly

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


CHANGING = """
    import torch
    from torch import nn
    torch.manual_seed(0)
    model = torch.compile(nn.Linear(4, 4), backend="eager", dynamic=False)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for step in range(400):
        loss = model(torch.randn(8 + step // 20, 4)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    """


@pytest.mark.slow
def test_compiling_again_and_again_is_told_apart(
    script: Callable[..., Path], tmp_path: Path
) -> None:
    """Of a model whose shapes change, forward and backward of such a step are compilations."""
    path = script(CHANGING)
    done = outpace("diagnose", "--json", "--quiet", "--time", "2", str(path), cwd=tmp_path)
    told = json.loads(done.stdout)
    (row,) = (row for row in told["ledger"] if row["name"] == "compiling")
    assert row["seconds"] > 0
    (finding,) = (f for f in told["findings"] if "compiled again" in f["reason"])
    assert (finding["bound"], finding["cause"]) == ("compute", "dispatch")
    assert finding["where"].endswith(":8")
