"""Losses of validations: seen while there is one, and torch is left as it was."""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Iterator

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from outpace.measure.validation import LOSSES, ValidationLosses
from outpace.seams.host import Host
from outpace.tune.assemble import assemble


@pytest.fixture
def host() -> Iterator[Host]:
    made = assemble(switching=True)
    made.install()
    yield made
    made.remove()


def test_each_validation_has_its_loss(host: Host) -> None:
    before = {name: getattr(functional, name) for name in LOSSES}
    seen = ValidationLosses(host)
    torch.manual_seed(0)
    model, criterion = nn.Linear(8, 4), nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    wanted = []
    for _ in range(3):
        for _ in range(2):
            optimizer.zero_grad()
            criterion(model(torch.randn(16, 8)), torch.arange(16) % 4).backward()
            optimizer.step()
        assert functional.cross_entropy is before["cross_entropy"]
        losses = []
        with torch.no_grad():
            model.eval()
            for rows in (16, 48):
                out, labels = model(torch.randn(rows, 8)), torch.arange(rows) % 4
                losses.append(rows * criterion(out, labels).item())
                functional.mse_loss(out, out, reduction="none")
            model.train()
        wanted.append(sum(losses) / 64)
    assert [samples for samples, _ in seen.read()] == [32, 64, 96]
    assert [value for _, value in seen.read()] == pytest.approx(wanted, rel=1e-6)
    seen.end()
    assert {name: getattr(functional, name) for name in LOSSES} == before


@pytest.mark.parametrize("first", ["training", "validation"])
def test_batches_of_the_training_that_are_judged_are_left_out(host: Host, first: str) -> None:
    """As a script that tells its loss on both after each epoch does."""
    seen = ValidationLosses(host)
    torch.manual_seed(0)
    model = nn.Linear(8, 4)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    train, valid = (
        DataLoader(TensorDataset(torch.randn(rows, 8), torch.arange(rows) % 4), batch_size=16)
        for rows in (64, 48)
    )

    def loss_on(loader: DataLoader[tuple[torch.Tensor, ...]]) -> float:
        model.eval()
        with torch.no_grad():
            losses = [functional.cross_entropy(model(x), y).item() for x, y in loader]
        model.train()
        return sum(losses) / len(losses)

    wanted = []
    for _ in range(3):
        for x, y in train:
            optimizer.zero_grad()
            functional.cross_entropy(model(x), y).backward()
            optimizer.step()
        if first == "training":
            loss_on(train)
        wanted.append(loss_on(valid))
        if first == "validation":
            loss_on(train)
    assert [samples for samples, _ in seen.read()] == [64, 128, 192]
    assert [value for _, value in seen.read()] == pytest.approx(wanted, rel=1e-5)
    seen.end()


def test_what_is_judged_between_a_batch_and_its_step_is_a_validation(host: Host) -> None:
    """By tensors that no loader gave, though the batch drawn last is one of the training's."""
    seen = ValidationLosses(host)
    model = nn.Linear(8, 4)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    x, y = torch.randn(16, 8), torch.arange(16) % 4
    train = DataLoader(TensorDataset(torch.randn(64, 8), torch.arange(64) % 4), batch_size=16)
    for index, (rows, classes) in enumerate(train):
        if index % 2:
            with torch.no_grad():
                functional.cross_entropy(model(x), y)
        functional.cross_entropy(model(rows), classes).backward()
        optimizer.step()
    assert [samples for samples, _ in seen.read()] == [16, 48]
    seen.end()


def test_a_loss_that_is_a_sum_is_told_as_its_mean(host: Host) -> None:
    out, labels = torch.randn(48, 4), torch.arange(48) % 4
    wanted = [functional.cross_entropy(out, labels).item(), out.square().mean().item()]
    seen = ValidationLosses(host)
    seen.on_validation(True)
    functional.cross_entropy(out, labels, reduction="sum")
    seen.on_validation(False)
    seen.on_validation(True)
    nn.MSELoss(reduction="sum")(out, torch.zeros(48, 4))
    assert [value for _, value in seen.read()] == pytest.approx(wanted)
    seen.end()


def test_a_function_that_the_script_has_put_there_stays(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = ValidationLosses(host)
    own = lambda *args: torch.zeros(())  # noqa: E731
    seen.on_validation(True)
    monkeypatch.setattr(functional, "cross_entropy", own)
    seen.end()
    assert functional.cross_entropy is own


def test_a_failure_of_ours_is_told_once(
    host: Host, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen = ValidationLosses(host)
    monkeypatch.setattr(seen, "note", lambda *_: 1 / 0)
    seen.on_validation(True)
    losses = [functional.mse_loss(torch.ones(4), torch.zeros(4)).item() for _ in range(3)]
    seen.end()
    assert losses == [1.0, 1.0, 1.0]
    assert capsys.readouterr().err.count("ZeroDivisionError") == 1


class Scripted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(self.layer(x), y)


@pytest.mark.filterwarnings("ignore:.torch.jit")
def test_a_function_that_is_seen_stays_the_same_object(host: Host) -> None:
    """A script holds it, pickles it, asks for its arguments, and compiles what calls it."""
    held = functional.cross_entropy
    code, arguments, noted = held.__code__, inspect.signature(held), dict(vars(held))
    seen, model = ValidationLosses(host), Scripted()
    x, y = torch.randn(16, 8), torch.arange(16) % 4
    wanted = model(x, y)
    seen.on_validation(True)
    assert functional.cross_entropy is held
    assert pickle.loads(pickle.dumps(held)) is held
    assert inspect.signature(held) == arguments
    assert "def cross_entropy" in inspect.getsource(held)
    assert torch.equal(torch.jit.script(model)(x, y), wanted)
    assert not seen.rows
    assert torch.equal(held(model.layer(x), y), wanted), "it is seen however the script came by it"
    assert seen.rows == 16
    seen.end()
    assert held.__code__ is code
    assert vars(held) == noted


def test_a_model_that_is_compiled_while_it_validates(host: Host) -> None:
    """Torch calls the function without values then, and with them in what it has compiled."""
    seen, model = ValidationLosses(host), Scripted()
    x, y = torch.randn(16, 8), torch.arange(16) % 4
    wanted = model(x, y)
    seen.on_validation(True)
    compiled = torch.compile(model, backend="eager")
    for _ in range(2):
        assert torch.equal(compiled(x, y), wanted)
    seen.end()
    assert not host.broken
