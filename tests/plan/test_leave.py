"""Leaving loops that have no ``break``: what is left to do in them is done, and what follows them."""

from __future__ import annotations

import contextlib
import math
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from outpace.plan.leave import (
    evaluates_after,
    follow,
    saves,
    saves_last_only,
    ways_out,
)


def nothing() -> None:
    """Nobody has to be told."""


def leave() -> bool:
    """As a step does when the time is up."""
    exits, last = ways_out(sys._getframe(1))
    assert follow(exits, nothing)
    return last


def test_a_loop_ends_where_it_would_turn() -> None:
    done = []
    for step in range(100):
        if step == 3:
            leave()
        done.append(step)
    done.append(-1)
    assert done == [0, 1, 2, 3, -1]
    assert sys.gettrace() is None


def test_what_an_epoch_has_left_to_do_is_done() -> None:
    done: list[object] = []
    for epoch in range(100):
        for step in range(100):
            if (epoch, step) == (1, 2):
                assert leave()
        done.append(f"validated {epoch}")
    done.append("saved")
    assert done == ["validated 0", "validated 1", "saved"]


def test_a_loop_whose_inner_loop_ends_its_body() -> None:
    done = []
    for epoch in range(100):
        done.append(epoch)
        for step in range(100):
            if (epoch, step) == (1, 2):
                assert leave()
    assert done == [0, 1]
    assert sys.gettrace() is None


def many(*numbers: int) -> None:
    pass


def test_a_loop_behind_a_call_of_very_many_arguments() -> None:
    """From there the interpreter moves no frame: the loop is left at the first lines of its next turn."""
    done: list[object] = []
    for epoch in range(100):
        for step in range(100):
            if (epoch, step) == (1, 2):
                assert leave()
        done.append(epoch)
        many(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24)
    done.append("saved")
    assert done == [0, 1, "saved"]
    assert sys.gettrace() is None


def test_what_follows_a_try_and_is_nothing_simple() -> None:
    """The line before it is a way, as what a ``try`` has in it is on the same stack."""
    done, best = [], None
    seen: list[int] = []
    try:
        for epoch in range(100):
            if epoch == 2:
                assert leave()
            seen.append(epoch)
    except KeyboardInterrupt:
        pass
    if best is not None:
        done.append(best)
    if seen:
        done.append(len(seen))
    assert done == [3]


def test_it_is_told_when_the_outermost_loop_is_left() -> None:
    told: list[str] = []
    for epoch in range(100):
        for step in range(100):
            if (epoch, step) == (0, 2):
                exits, _ = ways_out(sys._getframe())
                assert follow(exits, lambda: told.append("left"))
        told.append(f"epoch {epoch}")
    told.append("after")
    assert told == ["epoch 0", "left", "after"]


def told_when_left(told: list[str]) -> None:
    exits, _ = ways_out(sys._getframe(1))
    assert follow(exits, lambda: told.append("left"))


def test_it_is_told_too_where_the_loop_is_left_by_itself() -> None:
    told: list[str] = []
    for _ in range(100):
        told_when_left(told)
        break
    told.append("after a break")
    assert sys.gettrace() is None
    try:
        for _ in range(100):
            told_when_left(told)
            raise KeyboardInterrupt
    except KeyboardInterrupt:
        told.append("after Ctrl-C")
    assert sys.gettrace() is None

    def train() -> None:
        for _ in range(100):
            told_when_left(told)
            return
        told.append("never")

    train()
    assert sys.gettrace() is None
    assert told == ["left", "after a break", "left", "after Ctrl-C", "left"]


def test_a_generator_that_trains() -> None:
    done = []

    def training() -> Iterator[int]:
        for step in range(100):
            if step == 3:
                leave()
            yield step
        done.append("saved")

    steps = list(training())
    assert steps == [0, 1, 2, 3]
    assert done == ["saved"]
    for step in training():
        done.append(step)  # noqa: PERF402
    done.append("after")
    assert done == ["saved", 0, 1, 2, 3, "after"]


def test_a_function_that_ends_takes_its_trace_with_it() -> None:
    def one_epoch() -> int:
        for step in range(50):
            if step == 3:
                exits, last = ways_out(sys._getframe())
                assert not last  # the loop of the caller is within a with
                assert follow(exits, nothing)
        return step

    with contextlib.suppress(KeyError):
        for _ in [0, 1]:
            assert one_epoch() in (3, 49)
            assert sys.gettrace() is None
            break


def test_a_step_in_a_function_of_its_own() -> None:
    def one_epoch(epoch: int) -> str:
        for step in range(50):
            if (epoch, step) == (2, 5):
                assert leave()
        return f"epoch {epoch} ended at {step}"

    done = []
    for epoch in range(9):
        done.append(one_epoch(epoch))  # noqa: PERF401
    assert done == ["epoch 0 ended at 49", "epoch 1 ended at 49", "epoch 2 ended at 5"]


def test_while() -> None:
    step, turns = 0, []
    while step < 1000:
        step += 1
        if step == 4:
            leave()
        turns.append(step)
    assert turns == [1, 2, 3, 4]


def test_while_true() -> None:
    step, turns = 0, []
    while True:
        step += 1
        if step == 4:
            leave()
        turns.append(step)
        if step == 500:
            break
    assert turns == [1, 2, 3, 4]


def test_while_true_around_a_loop_over_batches() -> None:
    done: list[object] = []
    while True:
        for batch in range(10):
            if len(done) == 1 and batch == 6:
                assert leave()
        done.append(batch)
        if len(done) > 50:
            break
    done.append("saved")
    assert done == [9, 6, "saved"]


def test_statements_over_several_lines_follow() -> None:
    done = []
    for step in range(50):
        if step == 2:
            leave()
    done.append(
        (
            step,
            "saved",
        )
    )
    assert done == [(2, "saved")]


def test_a_with_follows() -> None:
    done = []
    for step in range(50):
        if step == 2:
            leave()
    with contextlib.suppress(KeyError):
        done.append(step)
    assert done == [2]


def test_a_with_follows_a_loop_within_a_loop() -> None:
    done = []
    for epoch in range(50):
        count = 0
        for step in range(50):
            if (epoch, step) == (1, 2):
                leave()
            count += 1
        with contextlib.suppress(KeyError):
            done.append((epoch, count))
    with contextlib.suppress(KeyError):
        done.append((-1, -1))
    assert done == [(0, 50), (1, 3), (-1, -1)]


def test_a_value_over_several_lines_follows() -> None:
    known = True
    for step in range(50):
        if step == 2:
            leave()
    value = "a" if known else (
        "b")  # fmt: skip
    assert (value, step) == ("a", 2)


def test_another_loop_follows() -> None:
    done = []
    for step in range(50):
        if step == 2:
            leave()
    while step < 4:
        step += 1
        done.append(step)
    for other in range(2):
        done.append(10 * other)  # noqa: PERF401
    assert done == [3, 4, 0, 10]


def test_a_line_that_cannot_be_told_apart_is_not_gone_to() -> None:
    def train() -> bool:
        for _ in list(range(50)):
            last = ways_out(sys._getframe())[1]
        with contextlib.suppress(KeyError):
            return last

    assert train() is False


def test_a_loop_that_nothing_follows_and_whose_caller_goes_on() -> None:
    found = []

    def train() -> None:
        for _ in [0, 1, 2]:
            found.append(ways_out(sys._getframe())[1])  # noqa: PERF401

    train()
    assert found == [False, False, False]


def test_a_with_around_the_loop_is_gone_through(tmp_path: Path) -> None:
    last = None
    with (tmp_path / "log").open("w"):
        for _ in [0, 1, 2]:
            last = ways_out(sys._getframe())[1]
    assert last is False


def test_a_try_around_the_loop_is_done_where_it_is_left() -> None:
    done = []
    try:
        for step in range(50):
            if step == 2:
                assert leave()
            done.append(step)
    except KeyboardInterrupt:
        done.append(-1)
    done.append(-2)
    try:
        for step in range(50):
            if step == 2:
                assert leave()
    except KeyboardInterrupt:
        done.append(-1)
    else:
        done.append(-3)
    assert done == [0, 1, 2, -2, -3]


def test_a_finally_is_gone_through() -> None:
    last = None
    try:
        for _ in [0, 1, 2]:
            last = ways_out(sys._getframe())[1]
    finally:
        pass
    assert last is False


def test_a_debugger_has_the_thread_to_itself() -> None:
    before = sys.gettrace()
    sys.settrace(lambda *_: None)
    try:
        assert not follow([], nothing)
    finally:
        sys.settrace(before)


def run(tmp_path: Path, text: str) -> subprocess.CompletedProcess[str]:
    path = tmp_path / "train.py"
    path.write_text(textwrap.dedent(text))
    return subprocess.run(
        [sys.executable, str(path)], capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize(
    "call",
    [
        pytest.param("main()", marks=pytest.mark.slow),
        "if __name__ == '__main__':\n    main()",
    ],
)
def test_a_script_that_has_nothing_left_to_do_ends(tmp_path: Path, call: str) -> None:
    text = f"""
import atexit, sys
from outpace.plan.leave import follow, ways_out
def main():
    atexit.register(lambda: print("tidied up"))
    for step in range(10**9):
        if step == 3:
            exits, last = ways_out(sys._getframe())
            assert last and follow(exits, lambda: None)
        print(step)
{call}
"""
    done = run(tmp_path, text)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split("\n") == ["0", "1", "2", "3", "tidied up", ""]


def test_a_function_that_is_called_in_the_loop_and_after_it() -> None:
    found = []
    for _ in range(2):
        found.append(evaluates_after(sys._getframe()))
        checked(found)
    checked(found)
    assert found == [True, True]
    for _ in range(2):
        found.append(evaluates_after(sys._getframe()))  # noqa: PERF401
    assert found[2:] == [False, False]


def checked(found: list[bool]) -> None:
    assert found


def saved(found: list[bool]) -> None:
    """No validation, as is known once one was met."""


def test_of_functions_that_are_called_after_the_loop_those_count_that_validate() -> None:
    found: list[bool] = []
    for _ in range(2):
        for judging in ((), {saved.__code__}, {checked.__code__}):
            found.append(evaluates_after(sys._getframe(), judging))  # noqa: PERF401
        saved(found)
        checked(found)
    saved(found)
    assert found == [True, True, False] * 2


def test_a_decorated_function_follows(tmp_path: Path) -> None:
    """Its first line is the decorator's."""
    text = """
import sys
from outpace.plan.leave import follow, ways_out
print("begins")
for step in range(10**9):
    if step == 3:
        exits, last = ways_out(sys._getframe())
        assert last and follow(exits, lambda: None)


@staticmethod
def check():
    return "saved"


print(step, check())
"""
    done = run(tmp_path, text)
    assert (done.stdout, done.returncode) == ("begins\n3 saved\n", 0), done.stderr


@pytest.mark.parametrize(
    "call",
    [
        "ThreadPoolExecutor(1).submit(train).result()",
        pytest.param("asyncio.run(asyncio.wait_for(task(), None))", marks=pytest.mark.slow),
        "list(map(lambda _: train(), range(2)))",
    ],
)
def test_a_training_whose_caller_is_not_seen_does_not_end_the_script(
    tmp_path: Path, call: str
) -> None:
    text = f"""
import asyncio, sys
from concurrent.futures import ThreadPoolExecutor
from outpace.plan.leave import follow, ways_out
def train():
    for step in [0, 1, 2]:
        print(step, ways_out(sys._getframe())[1])
async def task():
    train()
{call}
"""
    done = run(tmp_path, text)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("0 False\n1 False\n2 False\n")


def test_it_is_told_where_a_loop_that_cannot_be_left_ends_by_itself() -> None:
    told: list[bool] = []

    def train() -> None:
        for step in [0, 1, 2]:
            if step == 1:
                exits, last = ways_out(sys._getframe())
                assert not last
                assert not follow(exits, lambda: told.append(True))

    train()
    assert told == [True]
    assert sys.gettrace() is None


class Trainer:
    """Validates within its loop over epochs."""

    def __init__(self) -> None:
        self.found: list[bool] = []

    @torch.no_grad()
    def validate(self) -> None:
        """Nothing is learnt."""

    def fit(self) -> None:
        for _ in range(2):
            self.found.append(evaluates_after(sys._getframe()))
            self.validate()

    def fit_and_test(self) -> None:
        for _ in range(2):
            self.found.append(evaluates_after(sys._getframe()))
            self.validate()
        self.validate()


def test_a_method_that_is_called_in_the_loop_and_after_it() -> None:
    trainer = Trainer()
    trainer.fit_and_test()
    assert trainer.found == [True, True]


def test_a_caller_that_validates_after_the_training() -> None:
    trainer = Trainer()
    trainer.fit()
    trainer.validate()
    assert trainer.found == [True, True]


def test_a_caller_that_validates_instead_of_training() -> None:
    trainer = Trainer()
    if not trainer.found:
        trainer.fit()
    else:
        trainer.validate()
    assert trainer.found == [False, False]


@pytest.mark.parametrize("again", [True, False])
def test_functions_within_the_one_that_trains(again: bool) -> None:
    found: list[bool] = []

    def evaluate() -> None:
        """Nothing is learnt."""

    def train() -> None:
        for _ in range(2):
            found.append(evaluates_after(sys._getframe()))
            evaluate()

    if again:
        train()
        evaluate()
    else:
        train()
    assert found == [again, again]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("torch.save({}, path)", True),
        ("model.save_pretrained(path)", True),
        ("save_checkpoint(path)", True),
        ("plt.savefig(path)", False),
        ("self.save_hyperparameters()", False),
        ("print(1)", False),
    ],
)
def test_whether_a_script_saves(tmp_path: Path, line: str, told: bool) -> None:
    path, found = tmp_path / "train.py", []
    text = f"def end(path):\n    {line}\nlook()\n"
    path.write_text(text)
    os.utime(path, (0, 0))  # not edited since this process began
    names = {"look": lambda: found.append(saves(sys._getframe(1)))}
    exec(compile(text, str(path), "exec"), names)  # noqa: S102
    assert found == [told]


def test_an_epochs_phases_are_gone_through() -> None:
    """What trains is over; what validates keeps the best weights, and is not left out."""
    done: list[object] = []
    batches = {"train": range(100), "val": range(2)}
    for epoch in range(100):
        for phase in ["train", "val"]:
            for batch in batches[phase]:
                if (epoch, phase, batch) == (1, "train", 3):
                    assert leave()
                if phase == "val":
                    done.append((epoch, batch))
        done.append(f"epoch {epoch}")
    done.append("saved")
    assert done == [(0, 0), (0, 1), "epoch 0", (1, 0), (1, 1), "epoch 1", "saved"]
    assert sys.gettrace() is None


def test_phases_in_a_function_of_their_own_are_gone_through() -> None:
    done: list[object] = []
    loaders = {"train": range(100), "val": range(2)}

    def run_epoch(epoch: int) -> dict[str, int]:
        lengths = {}
        for phase in loaders:  # noqa: PLC0206 - as scripts write it
            for batch in loaders[phase]:
                if phase == "train" and (epoch, batch) == (1, 3):
                    assert leave()
                lengths[phase] = batch + 1
        return lengths

    for epoch in range(100):
        lengths = run_epoch(epoch)
        done.append((lengths["train"], lengths["val"]))
    assert done == [(100, 2), (4, 2)]
    assert sys.gettrace() is None


def test_loops_that_are_not_to_be_left() -> None:
    done: list[object] = []
    for fold in range(3):
        for epoch in range(100):
            for step in range(100):
                if (epoch, step) == (1, 2):
                    exits, last = ways_out(sys._getframe(), keep=1)
                    assert last
                    assert follow(exits, nothing)
            done.append((fold, epoch))
    assert done == [(fold, epoch) for fold in range(3) for epoch in range(2)]


KEEPER = "def keep(model):\n    torch.save(model, path)"
SAVER = "def save_model():\n    torch.save(model, path)"


@pytest.mark.parametrize(
    ("body", "last"),
    [
        ("if epoch == epochs - 1:\n        torch.save(model, path)", True),
        ("if epoch + 1 == epochs:\n        save_checkpoint(model)", True),
        ("if epoch == epochs - 1:\n        print(loss)", False),
        ("if epoch % 5 == 0:\n        torch.save(model, path)", False),
        (
            "torch.save(model, path)\n    if epoch == epochs - 1:\n        torch.save(model, path)",
            False,
        ),
        ("if epoch % 10 == 0 or epoch == epochs - 1:\n        torch.save(model, path)", False),
        ("if loss < 1 and epoch == epochs - 1:\n        torch.save(model, path)", True),
        ("if x == 2 - 1:\n        torch.save(model, path)", False),
        ("if epoch == epochs - 1:\n        torch.save(model, path)\nsave_checkpoint(model)", False),
        (f"if epoch == epochs - 1:\n        torch.save(model, path)\n{SAVER}", True),
        (f"if epoch == epochs - 1:\n        torch.save(model, path)\n{SAVER}\nsave_model()", False),
        ("if epoch == epochs - 1:\n        torch.save(model, path)\nnp.save(path, loss)", True),
        (
            f"keep(model)\n    if epoch == epochs - 1:\n        torch.save(model, path)\n{KEEPER}",
            False,
        ),
        ("if epoch == epochs - 1:\n        torch.save(model, path)\nfig.save(path)", True),
    ],
)
def test_scripts_that_save_in_their_last_turn_alone(
    body: str, last: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("outpace.measure.syntax._started", lambda: math.inf)  # the file is newer
    path = tmp_path / "train.py"
    path.write_text(f"for epoch in range(epochs):\n    for x in [1]:\n        look()\n    {body}\n")
    told: list[bool] = []
    names = {
        "look": lambda: told.append(saves_last_only(ways_out(sys._getframe(1))[0])),
        "epochs": 1,
        "model": 1,
        "path": 1,
        "loss": 1,
        "torch": torch,
        "save_checkpoint": lambda model: None,
    }
    with contextlib.suppress(Exception):  # nothing is saved
        exec(compile(path.read_text(), str(path), "exec"), names)  # noqa: S102
    assert told == [last]
