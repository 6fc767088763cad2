"""Which loops are over trainings, which training runs, and what it has of the time."""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from outpace.measure.length import Loop
from outpace.plan.countdown import Countdown
from outpace.plan.folds import Folds, Share, are_trainings, loops_over_trainings, position
from outpace.seams.host import Host
from outpace.seams.where import Place, lines_of
from tests.conftest import outpace


def lines(made: Place) -> list[str]:
    """The loops that are told of a step here, by what they are over."""
    found = loops_over_trainings(sys._getframe(1), made)
    return [Path(__file__).read_text().splitlines()[loop.lineno - 1].strip() for loop, _ in found]


def made_here() -> Place:
    return lines_of(sys._getframe(1))


def test_loops_around_both_the_optimizer_and_the_step() -> None:
    before = made_here()
    for _seed in range(1):
        for _fold in range(1):
            made = made_here()
            for _epoch in range(1):
                assert lines(made) == ["for _seed in range(1):", "for _fold in range(1):"]
                assert lines(before) == []
                assert lines(()) == []


def test_of_functions_that_the_loops_call() -> None:
    def trained() -> tuple[list[str], list[str]]:
        made = made_here()
        for _epoch in range(1):
            return lines(made), lines(elsewhere)
        raise AssertionError

    def ready() -> Place:
        return made_here()

    for _fold in range(1):
        elsewhere = ready()
        own, others = trained()
        assert own == others == ["for _fold in range(1):"]


def test_a_training_is_of_epochs_or_of_steps() -> None:
    over_loader, of_steps = Loop(None, False, loader=True), Loop(100, True)
    assert are_trainings([over_loader, Loop(10, True)])
    assert are_trainings([of_steps])
    assert are_trainings([Loop(None, False, while_=True)])
    assert not are_trainings([over_loader])  # an optimizer for each epoch
    assert not are_trainings([])


def test_where_it_is_in_loops_that_tell() -> None:
    at, seeds = -1, [7, 8]
    for _seed in seeds:
        for _fold, _lr in enumerate([0.1, 0.2, 0.3]):
            made = made_here()
            for _epoch in range(1):
                at += 1
                assert position(loops_over_trainings(sys._getframe(), made)) == at
    assert at == 5


class Run:
    """Trainings, each by an optimizer of its own, on a clock that the test moves."""

    def __init__(self) -> None:
        self.now = 0.0
        self.host = Host()
        self.folds = Folds(self.host, Countdown(0.0, seconds=100.0, now=lambda: self.now))

    def optimizer(self, weight: torch.Tensor | None = None) -> torch.optim.Optimizer:
        weight = torch.zeros(1, requires_grad=True) if weight is None else weight
        made = torch.optim.SGD([weight], lr=0.1)
        self.host.made[made] = lines_of(sys._getframe(1))
        return made

    def step(self, optimizer: torch.optim.Optimizer, seconds: float) -> bool:
        self.host.main_optimizer = lambda: optimizer
        with torch.no_grad():
            optimizer.param_groups[0]["params"][0] += 1.0
        self.now += seconds
        self.host.steps += 1
        return self.folds.note()


def test_what_one_does_not_use_the_others_have() -> None:
    run = Run()
    shares, others = [], []
    for _name in {"small": 1, "large": 2}.items():  # which does not tell where it is
        for _fold in range(2):
            optimizer = run.optimizer()
            for _epoch in range(2):
                for _step in range(2):
                    others += [run.step(optimizer, 5.0)]
                assert run.folds.total(2.0, 1.0) == run.folds.first + 4
            shares.append(run.folds.share())
    # The first begins with its first step: what came before is start-up.
    assert shares == [Share(5.0, 4), Share(20.0, 3), Share(40.0, 2), Share(60.0, 1)]
    assert others == [step in (4, 8, 12) for step in range(16)]
    ends = [share.ends(100.0) for share in shares if share]
    assert ends == pytest.approx([28.75, 20.0 + 80.0 / 3, 70.0, 100.0])
    assert str(run.folds) == "training 4 of 4"


def test_what_follows_trainings_in_a_turn_of_others_is_one_more() -> None:
    """As where a fold looks for its best rate, and trains with it then."""
    run = Run()
    for fold in range(2):
        for rate in range(3):
            optimizer = run.optimizer()
            for _epoch in range(1):
                for _step in range(2):
                    assert run.step(optimizer, 1.0) is (fold + rate > 0 and _step == 0)
            assert (run.folds.loops, run.folds.of, run.folds.at) == (2, 6, 3 * fold + rate)
        optimizer = run.optimizer()
        for _epoch in range(1):
            for _step in range(2):
                assert run.step(optimizer, 1.0) is (_step == 0)
        assert (run.folds.loops, run.folds.of, run.folds.at) == (1, 2, fold)
        assert run.folds.share() == Share(8.0 * fold + 6.0, 2 - fold)


def test_a_setting_whose_optimizer_is_made_at_another_line() -> None:
    """The loop tells where it is."""
    run = Run()
    ats = []
    for name in ["sgd", "adam", "adamw"]:
        if name == "sgd" or name == "adam":
            optimizer = run.optimizer()
        else:
            optimizer = run.optimizer()
        for _epoch in range(1):
            for _step in range(2):
                assert run.step(optimizer, 1.0) is (name != "sgd" and _step == 0)
        ats.append(run.folds.at)
    assert ats == [0, 1, 2]


def test_a_setting_whose_optimizer_takes_the_place_of_the_one_before() -> None:
    """The loop does not tell where it is; a second optimizer of a training leaves the first one there."""
    run = Run()
    ats, optimizer = [], None
    for name, _rate in itertools.product(["sgd", "adam"], [0.1, 0.01]):
        if name == "sgd":
            optimizer = run.optimizer()
        else:
            optimizer = run.optimizer()
        run.host.main_optimizer = lambda: None  # which would keep the one before
        for _epoch in range(1):
            for _step in range(2):
                run.step(optimizer, 1.0)
        ats.append(run.folds.at)
    assert ats == [0, 1, 2, 3]


def test_a_second_optimizer_of_a_training_begins_no_other() -> None:
    """Where the loop does not tell where it is, too; be it made within the loop or before it."""
    run = Run()
    others, after = [], run.optimizer()
    for _name in {"small": 1, "large": 2, "largest": 3}.items():
        first = run.optimizer()
        second = run.optimizer()
        for optimizer in (first, second, after):
            for _epoch in range(1):
                for _step in range(2):
                    others += [run.step(optimizer, 1.0)]
    assert others == [step in (6, 12) for step in range(18)]
    assert str(run.folds) == "training 3 of 3"
    assert run.folds.share() == Share(12.0, 1)


def test_the_optimizers_of_a_trainings_epochs_begin_no_other() -> None:
    """A loop over an epoch's steps may count them: that they go on with the same weights tells."""
    run = Run()
    weight = torch.zeros(1, requires_grad=True)
    for epoch in range(4):
        optimizer = run.optimizer(weight)
        for step in range(3):
            assert run.step(optimizer, 1.0) is ((epoch, step) == (1, 0))
        assert (run.folds.share() is None) is (epoch > 0)


def test_a_model_that_is_reset_is_trained_once_more() -> None:
    """In place: it is the same weights."""
    run = Run()
    weight = torch.zeros(1, requires_grad=True)
    for at in range(3):
        with torch.no_grad():
            weight.zero_()
        optimizer = run.optimizer(weight)
        for step in range(3):
            assert run.step(optimizer, 1.0) is (at > 0 and step == 0)
        assert (run.folds.of, run.folds.at) == (3, at)


def test_tasks_that_one_model_learns_one_after_the_other_are_trainings() -> None:
    run = Run()
    weight = torch.zeros(1, requires_grad=True)
    for task in range(3):
        optimizer = run.optimizer(weight)
        for epoch in range(2):
            for step in range(2):
                assert run.step(optimizer, 1.0) is (task > 0 and epoch == step == 0)
        assert run.folds.at == task


def test_what_follows_the_loop_has_what_is_left() -> None:
    run = Run()
    for _fold in range(2):
        optimizer = run.optimizer()
        for _epoch in range(2):
            for _step in range(2):
                run.step(optimizer, 1.0)
    assert run.folds.share() == Share(4.0, 1)
    optimizer = run.optimizer()
    for _epoch in range(2):
        for _step in range(2):
            assert run.step(optimizer, 1.0) is (_epoch == _step == 0)
    assert run.folds.share() is None
    for rate in [0.1, 0.2]:
        optimizer = run.optimizer()
        for _epoch in range(1):
            for _step in range(2):
                assert run.step(optimizer, 1.0) is (rate == 0.2 and _step == 0)
    assert run.folds.share() == Share(14.0, 1)
    assert run.folds.first == 14


def test_nothing_is_shared_where_an_epoch_has_an_optimizer_of_its_own() -> None:
    run = Run()
    for _epoch in range(3):
        optimizer = run.optimizer()
        for seconds in (1.0, 1.0):
            assert not run.step(optimizer, seconds)
        assert run.folds.share() is None


DATA = """
import time
import torch
from torch.utils.data import DataLoader, TensorDataset

x = torch.randn(400, 8)
data = TensorDataset(x, x.sum(1, keepdim=True))

def step(model, optimizer, a, b):
    time.sleep(0.01)
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(a), b).backward()
    optimizer.step()
"""
FOLDS = """
def train(fold, model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(100_000):
        for a, b in DataLoader(data, batch_size=4, shuffle=True):
            step(model, optimizer, a, b)
    torch.save(model.state_dict(), f"{fold}.pt")

for fold in range(3):
    train(fold, torch.nn.Linear(8, 1))
"""
SETTINGS = """
models = []
for lr in [0.1, 0.03, 0.01]:
    models.append(torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(models[-1].parameters(), lr=lr)
    for number in range(10**9):
        step(models[-1], optimizer, x[:4], x[:4].sum(1, keepdim=True))
for fold, model in enumerate(models):
    torch.save(model.state_dict(), f"{fold}.pt")
"""
SPLITS = """
from sklearn.model_selection import KFold

for fold, (train, held_out) in enumerate(KFold(3).split(x)):
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    best = 1e9
    while best > 0:
        for index in range(0, len(train), 4):
            step(model, optimizer, x[train[index:index + 4]], x[train[index:index + 4]].sum(1, keepdim=True))
    torch.save(model.state_dict(), f"{fold}.pt")
"""


@pytest.mark.parametrize("trainings", [FOLDS, SETTINGS, SPLITS])
def test_each_training_has_its_share(script: Callable[[str], Path], trainings: str) -> None:
    """Else the first would have all of the time, and the script could not load the others."""
    if trainings == SPLITS:
        pytest.importorskip("sklearn")
    path = script(DATA + trainings + "print([len(torch.load(f'{n}.pt')) for n in range(3)])\n")
    done = outpace("run", "--deadline", "20s", "--land", "train.py", cwd=path.parent)
    assert done.returncode in (0, 3), done.stderr  # a machine that stalls at the end is late
    assert done.stdout == "[2, 2, 2]\n", done.stderr
    assert "of the share of training 1 of 3" in done.stderr
    ended = re.findall(r"is up after (\d+) steps?, the rate at ([\d.]+) % of what", done.stderr)
    assert len(ended) == 3, done.stderr
    assert all(float(rate) < 5 for _, rate in ended), done.stderr
    first, second, third = (int(steps) for steps, _ in ended)
    assert max(first, second - first, third - second) < 3 * min(
        first, second - first, third - second
    )
