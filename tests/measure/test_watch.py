"""What a watcher keeps of a script that trains more than once, or asks other models."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from outpace.measure.watch import Watcher
from outpace.seams.host import TAKES_OVER_AFTER, Host
from outpace.tune.assemble import assemble


@pytest.fixture
def watcher() -> Iterator[Watcher]:
    """One of a host with its seams in."""
    host: Host = assemble(switching=True)
    host.most_in_group = 1  # each step by itself, short as it is
    watcher = Watcher(host)
    host.install()
    yield watcher
    watcher.validation.end()
    host.remove()


def train(
    model: nn.Module, optimizer: torch.optim.Optimizer, level: float, steps: int = 20
) -> None:
    """Losses of about this level."""
    for _ in range(steps):
        optimizer.zero_grad()
        (level + 0.0 * model(torch.ones(4, 8)).sum()).backward()
        optimizer.step()


@pytest.mark.parametrize("lives", [True, False])
def test_losses_of_another_models_training_are_another_curve(watcher: Watcher, lives: bool) -> None:
    """As a teacher's, or a fold's before: whether its optimizer is still there or not."""
    kept = []
    for level in (1.0, 30.0):
        model = nn.Linear(8, 2)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        train(model, optimizer, level)
        kept += [model, optimizer] if lives else []
        del model, optimizer
    samples, values = watcher.losses.read()
    assert set(values) == {30.0}, "and no sum of those before the change was seen"
    assert len(values) >= 20 - TAKES_OVER_AFTER
    assert len(samples) == len(values)


@pytest.mark.parametrize("group", [1, 10])
def test_the_loader_and_the_model_of_the_training_that_runs_are_kept(
    watcher: Watcher, group: int
) -> None:
    """Short steps are told of some at a time."""
    watcher.host.most_in_group = group
    for width in (8, 4):
        model = nn.Linear(width, 2)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        loader = DataLoader(TensorDataset(torch.ones(400, width)), batch_size=2)
        for (x,) in loader:
            optimizer.zero_grad()
            model(x).sum().backward()
            optimizer.step()
    loaded, root = watcher.kept
    assert isinstance(loaded, tuple)
    assert loaded[0] is loader
    assert isinstance(root, tuple)
    assert root[0] is model


def test_another_optimizer_of_the_same_model_goes_on(watcher: Watcher) -> None:
    """As where a rate is lowered by making a new one; its last steps' losses are not added up."""
    model = nn.Linear(8, 2)
    first = torch.optim.SGD(model.parameters(), 0.1)
    train(model, first, 1.0)
    train(model, torch.optim.SGD(model.parameters(), 0.01), 1.0)
    _, values = watcher.losses.read()
    assert set(values) == {1.0}
    assert len(values) >= 40 - TAKES_OVER_AFTER - 1


def test_losses_of_a_teachers_first_calls_are_no_validations(watcher: Watcher) -> None:
    """Until they are known to belong to the steps they look like some."""
    student, teacher = nn.Linear(4, 2), nn.Linear(4, 2).eval()
    optimizer = torch.optim.SGD(student.parameters(), 0.1)
    for (x,) in DataLoader(TensorDataset(torch.randn(32, 4)), batch_size=2):
        out = student(x)
        with torch.no_grad():
            wanted = teacher(x)
        optimizer.zero_grad()
        F.mse_loss(out, wanted).backward()
        optimizer.step()
    assert watcher.host.steps == 16
    assert watcher.validation.read() == []


def test_a_disk_that_writes_a_checkpoint_is_part_of_it(watcher: Watcher, tmp_path: Path) -> None:
    """`torch.save` leaves a file to the system: what waits for the disk after it belongs to it."""
    model = nn.Linear(8, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for step in range(20):
        optimizer.zero_grad()
        model(torch.ones(4, 8)).sum().backward()
        time.sleep(0.002)
        optimizer.step()
        if step % 5 == 4:
            torch.save(model.state_dict(), tmp_path / "model.pt")
            time.sleep(0.05)
    came = watcher.outside["checkpoint"]
    assert came.count == 3
    assert came.ns > 3 * 0.05e9
    assert watcher.elsewhere[1] / watcher.elsewhere[0] < 0.04e9


class Sly(dict[str, int]):
    """One that answers nothing."""

    def __len__(self) -> int:
        raise RuntimeError("ask me later")


def test_variables_that_raise_when_they_are_looked_at_end_no_watching(
    watcher: Watcher, capsys: pytest.CaptureFixture[str]
) -> None:
    """A view of a weight from within `no_grad` does, once the weight was stepped."""
    model = nn.Linear(8, 2)
    with torch.no_grad():
        row = model.weight[0]
    sly = Sly()
    train(model, torch.optim.SGD(model.parameters(), 0.1), 1.0)
    assert (len(row), type(sly)) == (8, Sly)
    assert len(watcher.steps) == 20
    assert capsys.readouterr().err == ""


def test_threads_are_those_of_the_steps_whatever_a_validation_has(watcher: Watcher) -> None:
    """As torchvision's detection reference, which evaluates on one."""
    model = nn.Linear(8, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        train(model, optimizer, 1.0)
        torch.set_num_threads(1)
        assert watcher.threads == 3
    finally:
        torch.set_num_threads(before)
