"""Whether a script looks at gradients that no optimizer has."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn

from outpace.measure.gradients_read import asked_for_in_script, named_in_script
from outpace.tune.assemble import assemble
from outpace.tune.probes import ModelCounter

TEACHER, STUDENT = nn.Linear(16, 8), nn.Linear(16, 8)
ALL = [*TEACHER.parameters(), *STUDENT.parameters()]


def ask_autograd() -> Any:
    x = torch.ones(2, 16, requires_grad=True)
    return torch.autograd.grad(TEACHER(x).sum(), x)


def read_data() -> Any:
    assert TEACHER.weight.grad is not None
    return TEACHER.weight.grad.data.norm()


CASES: dict[str, tuple[Callable[[], Any], bool]] = {
    "nothing": (lambda: None, False),
    "one norm of all": (lambda: nn.utils.clip_grad_norm_(ALL, 1.0), True),
    "of what is stepped": (lambda: nn.utils.clip_grad_norm_(STUDENT.parameters(), 1.0), False),
    "zeroed": (lambda: TEACHER.zero_grad(set_to_none=False), False),
    "through data": (read_data, True),
    "asked of autograd": (ask_autograd, False),
}


@pytest.mark.parametrize("name", CASES)
def test_operators_that_are_given_them(name: str) -> None:
    between, read = CASES[name]
    host = assemble(switching=True)
    host.install()
    try:
        optimizer = torch.optim.SGD(STUDENT.parameters(), 0.1)

        def step() -> None:
            x = torch.randn(4, 16)
            optimizer.zero_grad()
            nn.functional.mse_loss(STUDENT(x), TEACHER(x)).backward()
            between()
            optimizer.step()

        for _ in range(3):
            step()
        counter = ModelCounter(host)
        with counter:
            step()
        assert counter.failure is None
        assert counter.readings.met is read
    finally:
        host.remove()


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("norm = sum(p.grad.norm() for p in model.parameters())", True),
        ("p.requires_grad = False", False),
        ("p.requires_grad_(False)", False),
        ("slopes = torch.autograd.grad(loss, x)", False),
        ("with torch.no_grad(): model.zero_grad()", False),
    ],
)
def test_sources_that_name_them(
    line: str, named: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    only_module(line, tmp_path, monkeypatch)
    assert named_in_script() is named
    assert not asked_for_in_script()


@pytest.mark.parametrize(
    ("line", "asked"),
    [
        ("learned = [p for p in model.parameters() if p.requires_grad]", True),
        ("wanted = p.requires_grad == False", True),
        ("p.requires_grad_(False)", False),
    ],
)
def test_sources_that_ask_which_have_any(
    line: str, asked: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    only_module(line, tmp_path, monkeypatch)
    assert asked_for_in_script() is asked
    assert not named_in_script()


def only_module(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the user's, of which this is all."""
    before = dict(sys.modules)
    path = tmp_path / "helpers.py"
    path.write_text(line + "\n")
    module = ModuleType("helpers")
    module.__file__ = str(path)
    for name in before:  # the tests' own modules name them
        if name.startswith(("tests", "conftest", "__main__")):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "helpers", module)
