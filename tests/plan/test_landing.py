"""Runs with a deadline, as a user starts them; they are given seconds, and judged by what they did."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.conftest import outpace, plainly

LOADER = """
import sys, time
import torch
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
x = torch.randn(400, 8)
loader = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=4, shuffle=True)
held_out = DataLoader(TensorDataset(x[:8], x[:8].sum(1, keepdim=True)), batch_size=4)
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
"""
EPOCHS = """
for epoch in range(int(sys.argv[1])):
    total = count = 0
    for a, b in loader:
        time.sleep(0.01)
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(a), b)
        loss.backward()
        optimizer.step()
        total, count = total + loss.item(), count + 1
    with torch.no_grad():
        valid = sum(torch.nn.functional.mse_loss(model(a), b).item() for a, b in held_out)
    print(f"epoch {epoch}: {total / count:.3f} {valid:.3f}")
torch.save(model.state_dict(), "model.pt")
print("saved")
"""
BY_HAND = """
import sys, time
import torch

weight = torch.zeros(8, requires_grad=True)
for step in range(10**9):
    time.sleep(0.01)
    loss = (weight - 1).square().sum()
    loss.backward()
    with torch.no_grad():
        weight -= 0.01 * weight.grad
    weight.grad = None
print("ended well")
"""


def test_it_lands(script: Callable[[str], Path]) -> None:
    """What the script does at its end sees all batches."""
    path = script(LOADER + EPOCHS + 'print("seen at the end:", sum(1 for _ in loader))\n')
    done = outpace("run", "--deadline", "20s", "--land", "train.py", "100000", cwd=path.parent)
    assert done.returncode in (0, 3), done.stderr  # a machine that stalls at the end is late
    assert done.stdout.endswith("saved\nseen at the end: 100\n")
    assert torch.load(path.with_name("model.pt"), weights_only=True)
    assert "landing: the learning rate goes down to zero" in done.stderr
    left = re.search(r"after (\d+) steps, the rate at ([\d.]+) % of what it was", done.stderr)
    assert left is not None
    assert float(left[2]) < 2
    saved = torch.load(path.parent / ".outpace/last-run/safety.pt", weights_only=True)
    assert saved["steps"] == int(left[1])
    assert saved["models"][0].keys() == {"weight", "bias"}


def test_what_the_script_left_open_is_written(script: Callable[[str], Path]) -> None:
    """A file in a cycle, which Python's garbage collector closes as the process ends."""
    path = script(
        """
        import torch

        class Log:
            def __init__(self):
                self.file, self.me = open("log.txt", "w"), self

        log = Log()
        log.file.write("all of it")
        """
    )
    done = outpace("run", "--deadline", "60s", "--land", "train.py", cwd=path.parent)
    assert done.returncode == 0, done.stderr
    assert path.with_name("log.txt").read_text() == "all of it"


def test_a_run_that_fits_is_left_as_it_is(script: Callable[[str], Path]) -> None:
    path = script(LOADER + EPOCHS.replace("time.sleep(0.01)", "pass"))
    plain = plainly(path, ["2"])
    before = torch.load(path.with_name("model.pt"), weights_only=True)
    path.with_name("model.pt").unlink()
    done = outpace("run", "--deadline", "10m", "--land", "train.py", "2", cwd=path.parent)
    assert (done.returncode, done.stdout) == (0, plain.stdout)
    after = torch.load(path.with_name("model.pt"), weights_only=True)
    assert all(torch.equal(before[key], after[key]) for key in before)
    assert "landing" not in done.stderr


@pytest.mark.slow
def test_without_landing_it_is_told_and_the_exit_code_says_so(
    script: Callable[[str], Path],
) -> None:
    path = script(LOADER + EPOCHS)
    plain = plainly(path, ["7"])
    done = outpace("run", "--deadline", "7s", "train.py", "7", cwd=path.parent)
    assert done.returncode == 3
    assert done.stdout == plain.stdout
    assert "after its time" in done.stderr
    assert "--land ends it in time" in done.stderr
    assert "error: the deadline was missed by" in done.stderr


def test_weights_stepped_by_hand_are_ended_in_time_too(script: Callable[[str], Path]) -> None:
    path = script(BY_HAND)
    done = outpace("run", "--deadline", "8s", "--land", "train.py", cwd=path.parent)
    assert done.returncode in (0, 3), done.stderr
    assert done.stdout == "ended well\n"
    assert "only the end is brought forward" in done.stderr
    assert "no safety checkpoint was written: there is no optimizer" in done.stderr
    assert "what was learnt is in" not in done.stderr


@pytest.mark.parametrize(
    "follows",
    [pytest.param("", marks=pytest.mark.slow), "    finally:\n        print('at last')\n"],
)
def test_epochs_that_are_the_last_thing_in_a_function(
    follows: str, script: Callable[[str], Path]
) -> None:
    body = textwrap.indent(EPOCHS[: EPOCHS.index("torch.save")].strip(), "    ")
    if follows:
        body = "    try:\n" + textwrap.indent(body, "    ")
    path = script(f"{LOADER}\ndef train():\n{body}\n{follows}\ntrain()\nprint('saved')\n")
    done = outpace("run", "--deadline", "8s", "--land", "train.py", "100000", cwd=path.parent)
    assert done.returncode in (0, 3), done.stderr
    assert "cannot be left" not in done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) < 1000
    assert lines[-2:] == ["at last", "saved"] if follows else lines[-1] == "saved"


PACKAGE = """
import time
import torch

class Learner:
    def __init__(self):
        self.net, self.done = torch.nn.Linear(8, 1), 0
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.01)
    def learn(self, total):
        while self.done < total:
            self.done += 40
            self.train()
        print("done with", self.done)
    def train(self):
        for epoch in range(4):
            for batch in range(10):
                self.step()
    def step(self):
        time.sleep(0.01)
        self.optimizer.zero_grad()
        self.net(torch.ones(4, 8)).square().sum().backward()
        self.optimizer.step()
"""


def test_a_packages_loops_are_left_where_the_script_has_none(
    script: Callable[[str], Path],
) -> None:
    """A training is one call of it; what follows within it, and after it, is done."""
    path = script("import learners\nlearners.Learner().learn(1_000_000)\nprint('saved')\n")
    package = path.parent / "site-packages" / "learners.py"
    package.parent.mkdir()
    package.write_text(PACKAGE)
    path.write_text(f"import sys\nsys.path.insert(0, {str(package.parent)!r})\n{path.read_text()}")
    done = outpace("run", "--deadline", "9s", "--land", "train.py", cwd=path.parent)
    assert done.returncode in (0, 3), done.stderr
    told = re.fullmatch(r"done with (\d+)\nsaved\n", done.stdout)
    assert told is not None, done.stdout + done.stderr
    assert int(told[1]) < 10_000
    assert "cannot be left" not in done.stderr
    assert re.search(r"step \d+ of [\d,]{7,9} ", done.stderr), done.stderr


@pytest.mark.slow
def test_loops_that_cannot_be_left_give_one_batch_an_epoch(script: Callable[[str], Path]) -> None:
    body = textwrap.indent(EPOCHS[: EPOCHS.index("torch.save")].strip(), "    ")
    body = body.replace("in range(int(sys.argv[1]))", "in list(range(int(sys.argv[1])))")
    path = script(f"{LOADER}\ndef train():\n{body}\n\ntrain()\nprint('saved')\n")
    done = outpace("run", "--deadline", "10s", "--land", "train.py", "40", cwd=path.parent)
    assert done.returncode in (0, 3), done.stderr
    assert "cannot be left" in done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 41
    assert lines[-1] == "saved"


@pytest.mark.slow
def test_the_scripts_own_failure_is_its_own(script: Callable[[str], Path]) -> None:
    path = script(LOADER + EPOCHS + "raise SystemExit(7)\n")
    done = outpace("run", "--deadline", "1s", "--quiet", "train.py", "1", cwd=path.parent)
    assert done.returncode == 7


def test_what_cannot_be_kept_is_said_before_anything_runs(script: Callable[[str], Path]) -> None:
    path = script("print('ran')")
    for words, message in (
        (["--land"], "there is nothing to land for"),
        (["--deadline", "1h", "--reserve", "deploy=1h"], "no time is left"),
        (["--deadline", "soon"], "'soon' is not a duration"),
        (["--by", "2020-01-01T06:00"], "is past"),
        (["--deadline", "1h", "--by", "06:00"], "both say when the time is up"),
    ):
        done = outpace("run", *words, "train.py", cwd=path.parent)
        assert done.returncode == 2
        assert message in done.stderr
        assert "ran" not in done.stdout
