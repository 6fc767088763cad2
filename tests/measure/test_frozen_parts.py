"""Calls of parts of a model that never change, on what a batch alone tells."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from tests.measure.test_frozen import found_in
from tests.remedies.trainings import hosted
from torch import nn

from outpace.measure.frozen import Frozen
from outpace.measure.frozen_parts import FrozenParts
from outpace.seams.host import Host
from outpace.seams.root import RootFacts


class Encoder(nn.Sequential):
    """Was learnt before."""


class Classifier(nn.Module):
    """Learns on top of an encoder."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = Encoder(nn.Linear(8, 8), nn.ReLU(), nn.Dropout(), nn.Linear(8, 8))
        self.encoder.requires_grad_(False)
        self.head = nn.Linear(8, 2)
        self.train()

    def train(self, mode: bool = True) -> Classifier:
        super().train(mode)
        self.encoder.eval()
        return self

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            hidden = self.encoder(x)
        found: torch.Tensor = self.head(hidden)
        return found


class OfAMask(Classifier):
    """Both come from the batch."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.head(self.encoder(x * (x > 0)).detach())
        return found


class Drawn(Classifier):
    """Noise is other noise in each epoch."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x + torch.randn_like(x))


class After(Classifier):
    """What is learnt comes before."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(self.first(x).detach())


class Own(Classifier):
    """Its own weight is learnt, and may be used at any time."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x * self.scale.detach()) + self.scale.sum()


class LeftInTraining(Classifier):
    """Its dropout draws."""

    def train(self, mode: bool = True) -> Classifier:
        return nn.Module.train(self, mode)  # type: ignore[return-value]


class Learnt(Classifier):
    """The encoder is learnt too."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder.requires_grad_(True)


class ByItself(Classifier):
    """Its encoder follows an average of something."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.encoder[0].weight.data.mul_(0.9)
        return super().forward(x)


@pytest.fixture
def host() -> Iterator[Host]:
    with hosted(switching=True) as host:
        yield host
        assert not host.broken


def looked(host: Host, model: nn.Module) -> Frozen | None:
    learnt = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = torch.optim.SGD(learnt, 0.01)
    return found_in(host, lambda x: model(x).square().mean(), optimizer)


@pytest.mark.parametrize("kind", [Classifier, OfAMask])
def test_a_frozen_encoder_is_found(kind: type[Classifier], host: Host) -> None:
    model = kind()
    found = looked(host, model)
    assert found is not None
    assert found.model == "Encoder"
    assert found.seconds > 0
    assert "test_frozen_parts.py:" in str(found.where)
    assert found.facts()["frozen_of"] == "Encoder"
    assert not model.encoder._forward_hooks
    assert not model.encoder._forward_pre_hooks
    assert not model.head._forward_pre_hooks


@pytest.mark.parametrize("kind", [Drawn, After, Own, LeftInTraining, Learnt, ByItself])
def test_what_may_give_something_else_is_none(kind: type[Classifier], host: Host) -> None:
    found = looked(host, kind())
    assert found is None


def test_a_copy_and_a_file_are_without_what_looks(tmp_path: Path) -> None:
    """A script may keep its best model in the very step that is looked at."""
    model = Classifier()
    with hosted(switching=True) as host:
        optimizer = torch.optim.SGD(model.head.parameters(), 0.1)
        host.optimizers.add(optimizer)
        host.roots[model] = RootFacts()
        parts = FrozenParts(host, lambda *_: None)
        parts.install()
        assert parts.handles
        copied = copy.deepcopy(model)
        torch.save(model, tmp_path / "model.pt")
        parts.remove()
    x = torch.randn(2, 8)
    read = torch.load(tmp_path / "model.pt", weights_only=False)
    for each in (copied.eval(), read.eval()):
        assert torch.equal(each(x), model.eval()(x))


def test_what_torchscript_runs_takes_no_hooks() -> None:
    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.head = torch.jit.script(nn.Linear(8, 8).eval()), nn.Linear(8, 2)

    for model in (Mixed(), torch.jit.script(nn.Sequential(nn.Linear(8, 8)))):
        with hosted(switching=True) as host:
            host.optimizers.add(torch.optim.SGD(list(model.parameters())[-2:], 0.1))
            host.roots[model] = RootFacts()
            parts = FrozenParts(host, lambda *_: None)
            parts.install()
            parts.remove()
