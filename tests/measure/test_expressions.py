from __future__ import annotations

import ast
import math
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from outpace.measure.expressions import Unknown, evaluate


class Settings(dict[str, Any]):
    __getattr__ = dict.__getitem__


class Computed(dict[str, Any]):
    def __getattr__(self, name: str) -> Any:
        raise AssertionError("code of the user's was run")


class Lazy:
    def keys(self) -> list[str]:
        return []

    def __getitem__(self, name: str) -> Any:
        raise AssertionError("code of the user's was run")

    @property
    def epochs(self) -> int:
        raise AssertionError("code of the user's was run")


def here(node: ast.expr, given: dict[str, Any]) -> Any:
    scope = {
        "math": math,
        "ceil": math.ceil,
        **given,
        "evaluate": evaluate,
        "node": node,
        "sys": sys,
    }
    exec("found = evaluate(node, sys._getframe())", scope)  # noqa: S102
    return scope["found"]


TOKENS = torch.zeros(103, 20)


@pytest.mark.parametrize(
    ("text", "names", "wanted"),
    [
        ("tokens.size(0) - 1", {"tokens": TOKENS}, 102),
        ("tokens.shape[1]", {"tokens": TOKENS}, 20),
        ("rows.shape[0] // 8", {"rows": np.zeros((33, 2))}, 4),
        ("tokens.numel()", {"tokens": TOKENS}, 2060),
        ("int(n / b)", {"n": 10, "b": 4}, 2),
        ("math.ceil(n / b)", {"n": 10, "b": 4}, 3),
        ("ceil(n / b)", {"n": 10, "b": 4}, 3),
        ("min(n, b, 7)", {"n": 10, "b": 4}, 4),
        ("max(n, b)", {"n": 10, "b": 4}, 10),
        ("10 ** n", {"n": 6}, 10**6),
        ("len(items[:3])", {"items": [1, 2, 3, 4]}, 3),
        ("config.trainer.epochs", {"config": Settings(trainer=Settings(epochs=7))}, 7),
        ("config['epochs']", {"config": Settings(epochs=7)}, 7),
        ("args.epochs", {"args": SimpleNamespace(epochs=7)}, 7),
    ],
)
def test_what_is_evaluated(text: str, names: dict[str, Any], wanted: Any) -> None:
    assert here(ast.parse(text, mode="eval").body, names) == wanted


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("config.epochs", {"config": Computed()}),
        ("config.epochs", {"config": Lazy()}),
        ("config['epochs']", {"config": Lazy()}),
        ("tokens.sum()", {"tokens": TOKENS}),
        ("tokens.item()", {"tokens": torch.ones(1)}),
        ("size()", {"size": lambda: 3}),
        ("len(items)", {"items": [1], "len": lambda items: 5}),
        ("min(n, 3)", {"n": TOKENS}),
        ("10 ** n", {"n": 10**10}),
        ("args.other", {"args": SimpleNamespace()}),
    ],
)
def test_what_only_running_it_would_tell(text: str, names: dict[str, Any]) -> None:
    with pytest.raises(Unknown):
        here(ast.parse(text, mode="eval").body, names)
