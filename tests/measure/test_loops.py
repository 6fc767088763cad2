"""Loops around a step: which are there, and which of them are over phases or the parts of one step."""

from __future__ import annotations

import ast
import functools
import math
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from outpace.measure.length import Loop, loops_around_step
from outpace.measure.loops import is_over_phases, place_of_step

BATCHES = [(0, 1)] * 7


def test_a_place_is_where_the_step_is_called() -> None:
    def step() -> object:
        return place_of_step()

    places = [step() for _ in range(2)]
    places.append(step())
    assert places[0] == places[1] != places[2]


def test_what_steps_one_optimizer_after_the_other_is_one_step() -> None:
    weight = torch.zeros(1, requires_grad=True)
    optimizers = [torch.optim.SGD([weight]), torch.optim.Adam([weight])]
    for _ in range(3):
        for _optimizer in optimizers:
            assert loops_around_step()[:1] == [Loop(3, True)]
        for _name, _optimizer in dict(enumerate(optimizers)).items():
            assert loops_around_step()[0] != Loop(3, True), "nothing of it can be looked up"
        named = dict(enumerate(optimizers))
        for _name, _optimizer in named.items():
            assert loops_around_step()[:1] == [Loop(3, True)]


def test_an_epochs_phases_are_one_epoch() -> None:
    for _ in range(3):
        for phase in ["train", "val"]:
            if phase == "train":
                assert loops_around_step()[:1] == [Loop(3, True)]


def test_settings_whose_names_are_asked_for_are_no_phases() -> None:
    """Each of them is a training: within them are epochs, or they are the outermost."""
    for name in ["sgd", "adam"]:
        _rate = 0.1 if name == "sgd" else 0.001
        for _epoch in range(5):
            for _batch in [0, 1, 2]:
                assert loops_around_step()[:3] == [Loop(3, False), Loop(5, True), Loop(2, False)]


def test_the_batches_of_a_phase_may_be_counted_asked_for_or_divided() -> None:
    samples, phases = list(range(6)), 0
    for _epoch in range(5):
        for phase in ["train", "val"]:
            _rate = 0.1 if phase == "val" else 0.2
            for _at in range(0, 6, 2):
                phases += Loop(2, False) not in loops_around_step()
            for _at in range(len(samples)):
                phases += Loop(2, False) not in loops_around_step()
            coming = iter(samples)
            while next(coming, None) is not None:
                next(coming)
                phases += Loop(2, False) not in loops_around_step()
            for _batch in samples:
                for _part in samples:
                    phases += Loop(2, False) not in loops_around_step()
            for _again in range(3):
                phases -= Loop(2, False) in loops_around_step()
    assert phases == 5 * 2 * (3 + 6 + 3 + 36 - 3)


def test_settings_with_loops_over_epochs_of_any_kind_are_no_phases() -> None:
    weight = torch.zeros(1, requires_grad=True)
    for _seed in range(3):
        for name in ["sgd", "adam"]:
            assert torch.optim.SGD([weight], lr=0.1 if name == "sgd" else 0.2)
            for _epoch in [1, 2, 3, 4]:
                for _batch in [1, 2, 3]:
                    assert loops_around_step()[2] == Loop(2, False)
        for name in ["sgd", "adam"]:
            _rate = 0.1 if name == "sgd" else 0.2
            bar = range(4)
            for _epoch in bar:
                for _batch in [1, 2, 3]:
                    assert loops_around_step()[2] == Loop(2, False)


def test_phases_may_be_in_a_list_of_the_scripts_or_a_dict() -> None:
    def around(parts: Any) -> list[Loop]:
        for _epoch in range(5):
            for part in parts:
                for _batch in [0, 1, 2]:
                    if part != "val":
                        return loops_around_step()[:2]
        raise AssertionError

    assert around(["train", "val"]) == [Loop(3, False), Loop(5, True)]
    assert around({"train": 1, "val": 2}) == [Loop(3, False), Loop(5, True)]
    assert around([0.1, 0.2]) == [Loop(3, False), Loop(2, False)], "of numbers it is settings"


@pytest.mark.parametrize(
    ("loop", "phases"),
    [
        ("for phase in ['train', 'val']:\n    if phase == 'train': pass", True),
        ("for phase in names:\n    if phase == 'train': pass", True),
        ("for phase in loaders.keys():\n    if phase == 'train': pass", True),
        ("for name, loader in loaders.items():\n    x = 1 if 'val' != name else 2", True),
        ("for loader, trains in [(a, True), (b, False)]:\n    if not trains: pass", True),
        ("for text in texts:\n    if text == '': pass", False),
        ("for rate in [0.1, 0.2]:\n    train(rate)", False),
        ("for epoch in range(3):\n    if epoch == 2: pass", False),
        ("while True:\n    pass", False),
    ],
)
def test_which_loops_are_over_phases(loop: str, phases: bool) -> None:
    variables = {"names": ["train", "val"], "loaders": {"train": 1, "val": 2}, "texts": [""] * 1000}
    (tree,) = ast.parse(loop).body
    assert isinstance(tree, ast.For | ast.While)
    frame = eval("sys._getframe()", {"sys": sys, **variables})
    assert is_over_phases(tree, frame) is phases


PACKAGE = """
def fit(epochs, batches, step):
    for epoch in range(epochs):
        for batch in batches:
            step(batch)

def once(step):
    return step(0)

def each(optimizers, step):
    for optimizer in optimizers:
        step(optimizer)
"""


def test_a_packages_loops_are_the_trainings_where_the_script_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("outpace.measure.syntax._started", lambda: math.inf)  # the file is newer
    path = tmp_path / "site-packages" / "package.py"
    path.parent.mkdir()
    path.write_text(PACKAGE)
    names: dict[str, Any] = {"__name__": "package"}
    exec(compile(PACKAGE, str(path), "exec"), names)  # noqa: S102
    found: list[Any] = []

    def looks(_: object) -> None:
        found.append(loops_around_step()[:3])

    def callback(_: object) -> None:
        names["once"](looks)

    two = [Loop(3, False), Loop(5, True)]
    names["fit"](5, [1, 2, 3], looks)
    names["once"](lambda _: names["fit"](5, [1, 2, 3], callback))
    assert found == [two] * 30
    assert found[0] == two, "a callback of the script's is within them"
    found.clear()
    library = {"__name__": "another.package"}
    searching = tmp_path / "site-packages" / "search.py"
    searching.write_text(
        "def search(settings, train):\n    for each in settings:\n        train()\n"
    )
    exec(compile(searching.read_text(), str(searching), "exec"), library)  # noqa: S102
    search: Any = library["search"]
    search([1, 2], lambda: None)
    search([1, 2, 3, 4], functools.partial(names["fit"], 5, [1, 2, 3], looks))
    assert found == [two] * 60, "who searches over trainings is none of one"
    found.clear()
    for _batch in [1, 2]:
        names["each"]([1, 2, 3, 4], looks)
    assert found == [[Loop(2, False)]] * 8, "the script's own are the training's"


def test_optimizers_with_their_models_are_trained_one_after_the_other() -> None:
    """Only the innermost loop is one step."""
    weight = torch.zeros(1, requires_grad=True)
    optimizers = [torch.optim.SGD([weight]), torch.optim.Adam([weight])]
    for _optimizer in optimizers:
        for _epoch in range(5):
            assert loops_around_step()[:2] == [Loop(5, True), Loop(2, False)]
