"""Compilations are counted, and those that changing shapes make necessary are told apart."""

from __future__ import annotations

import gc
import json
import sys
import weakref
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tests.conftest import evidence_of, outpace, with_entry
from tests.remedies.trainings import hosted
from torch import nn

from outpace.seams.compiled import compiled_again, graphs_compiled
from outpace.seams.setup import AS_IS


def test_a_new_shape_compiles_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.delitem(sys.modules, "torch._dynamo.utils", raising=False)
        assert graphs_compiled() == 0, "where nothing was compiled"
    double, rounds = torch.compile(lambda x: (x + x).relu(), backend="eager"), list[int]()
    for length in (4, 4, 5):
        double(torch.ones(length))
        rounds.append(graphs_compiled())
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


def test_a_model_that_is_compiled_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """As those of a cross-validation are, fold after fold."""
    monkeypatch.setattr(torch, "compile", lambda forward: forward)
    with hosted(replace(AS_IS, compiled=True)):
        model = nn.Linear(4, 2)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for _ in range(2):
            optimizer.zero_grad()
            model(torch.ones(3, 4)).sum().backward()
            optimizer.step()
        gone = weakref.ref(model)
        del model, optimizer
        gc.collect()
        assert gone() is None


COMPILED = """
    import torch
    from torch import nn
    model = torch.compile(nn.Linear(4, 4), backend="eager")
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for step in range(1000):
        loss = model(torch.randn(8, 4)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    """


def test_the_compilation_that_each_model_needs_is_start_up(
    script: Callable[..., Path], tmp_path: Path
) -> None:
    entry, session = "outpace.tune.experiment:begin", tmp_path / "session"
    code, text = with_entry(script(COMPILED), session, entry, time_s=20.0, steps=100)
    assert code == 0, text
    rows = {row.name: row.seconds for row in evidence_of(session).ledger}
    assert "compiling" not in rows
    assert rows["startup"] > 0
