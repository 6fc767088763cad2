"""Trainings that a script comes to later."""

from __future__ import annotations

import os
import sys
import textwrap
from pathlib import Path
from types import CodeType
from typing import Any

import pytest

from outpace.measure.unreached import trainings_later

SCRIPT = """
def step(loss, optimizer):
    loss.backward()
    optimizer.step()

def fit_student(loader):
    for batch in loader:
        step(batch, None)

def attack(model):
    model.backward()  # gradients of the input, and no step

def train():
    step(None, None)

def evaluate(model):
    model.eval()
    model.train()  # no call of the function of that name

class Trainer:
    def fit(self):
        def inner(loss):
            loss.backward()
        self.optimizer.step()

    def fit_teacher(self):
        look()

    def run(self, fails=False):
        self.fit_teacher()
        evaluate(self)
        attack(self)
        {later}

def fit_teacher():
    look()

def main(trainer, flag):
    {main}

{end}
"""


class Seen(Exception):
    """All that is wanted of the script was."""


def run(
    tmp_path: Path,
    main: str,
    later: str = "pass",
    end: str = "main(Trainer(), True)",
    met: str = "",
) -> list[str]:
    """What is found while `fit_teacher` runs."""
    found: list[Any] = []

    def look() -> None:
        codes: set[CodeType] = {names[met].__code__} if met else set()
        found.extend(trainings_later(sys._getframe(1), codes))
        raise Seen

    path = tmp_path / "train.py"
    text = SCRIPT.format(main=textwrap.indent(main, "    ").strip(), later=later, end=end)
    path.write_text(text)
    os.utime(path, (0, 0))  # not edited since this process began
    names: dict[str, Any] = {"look": look, "__name__": "__main__"}
    with pytest.raises(Seen):
        exec(compile(text, str(path), "exec"), names)  # noqa: S102
    return [each.name for each in found]


@pytest.mark.parametrize(
    ("main", "wanted"),
    [
        ("fit_teacher()\nfit_student([])", ["fit_student"]),
        ("fit_teacher()\nfor seed in ():\n    fit_student(seed)", ["fit_student"]),
        ("for seed in range(1):\n    fit_teacher()\n    fit_student([])", ["fit_student"]),
        ("fit_teacher()\nTrainer.fit", []),
        ("fit_teacher()\nevaluate(trainer)\n", []),
        ("fit_student([])\nfit_teacher()", []),
        ("if flag:\n    fit_teacher()\nelse:\n    fit_student([])", []),
        ("try:\n    fit_teacher()\nfinally:\n    fit_student([])", ["fit_student"]),
        ("with open(__file__ if False else '/dev/null'):\n    fit_teacher()\n    fit_student([])",
         ["fit_student"]),
    ],
)  # fmt: skip
def test_calls_after_the_running_one(tmp_path: Path, main: str, wanted: list[str]) -> None:
    assert run(tmp_path, main) == wanted


def test_a_module_that_calls_it(tmp_path: Path) -> None:
    assert run(tmp_path, "fit_teacher()", end="main(0, 0)\nfit_student([])") == ["fit_student"]


def test_a_method_of_the_same_object(tmp_path: Path) -> None:
    later = "fails and self.fit()"
    assert run(tmp_path, "trainer.run()", later) == ["fit"]


def test_what_trains_already(tmp_path: Path) -> None:
    """A critic's function beside a generator's, in each step."""
    assert run(tmp_path, "fit_teacher()\nfit_student([])", met="fit_student") == []


LINES = """
class Fit:
    def __init__(self, optimizer, scheduler):
        self.optimizer, self.scheduler = optimizer, scheduler

    def closure(self):
        return 0.0

    def first(self, loss):
        for epoch in range(3):
            look()
            loss.backward()
            self.optimizer.step()
        {later}

fit = Fit(None, None)
for fold in {folds}:
    fit.first(None)
{end}
"""


@pytest.mark.parametrize(
    ("later", "end", "folds", "wanted"),
    [
        ("self.optimizer.step(self.closure)", "", 0, ["train.py:14"]),
        ("self.optimizer.step(lambda: 0.0)", "", 0, ["train.py:14"]),
        ("self.optimizer.step(closure=self.closure)", "", 0, ["train.py:14"]),
        ("self.scheduler.step(3.0)", "", 0, []),
        ("loss.backward(); self.optimizer.step()", "", 1, []),
        ("pass", "for x in ():\n    x.backward()\n    fit.optimizer.step()", 1, ["train.py:20"]),
        ("pass", "for x in ():\n    x.backward()", 1, []),
    ],
)
def test_lines_after_the_loops_around_the_running_one(
    tmp_path: Path, later: str, end: str, folds: int, wanted: list[str]
) -> None:
    """Where folds are trained in a loop, what follows one's epochs is of the same training."""
    text = LINES.format(later=later, end=end, folds="range(2)")
    if not folds:
        text = text.replace("for fold in range(2):\n    fit", "if True:\n    fit")
    path, found = tmp_path / "train.py", list[Any]()

    def look() -> None:
        found.extend(trainings_later(sys._getframe(1), set()))
        raise Seen

    path.write_text(text)
    os.utime(path, (0, 0))
    with pytest.raises(Seen):
        exec(compile(text, str(path), "exec"), {"look": look, "__name__": "__main__"})  # noqa: S102
    assert [Path(each.where).name for each in found] == wanted


def test_a_file_that_is_not_there_any_more(tmp_path: Path) -> None:
    found: list[Any] = []
    names = {"look": lambda: found.extend(trainings_later(sys._getframe(1), set())), "fit": len}
    exec(compile("look()\nfit([])", str(tmp_path / "gone.py"), "exec"), names)  # noqa: S102
    assert found == []
