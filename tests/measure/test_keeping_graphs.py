"""What a validation pays for graphs that nobody asks for, by its last call made again."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from tests.remedies.trainings import hosted
from torch import nn

from outpace.measure import keeping_graphs as module
from outpace.measure.keeping_graphs import times_with_graphs
from outpace.seams.host import Host


@pytest.fixture
def host() -> Iterator[Host]:
    with hosted(switching=True) as made:
        yield made


class Clocked(nn.Module):
    """On a clock of its own a call takes 1 s, and 3 with gradients on."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout())
        self.now = 0.0
        self.modes: list[bool] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.modes.append(self.training)
        self.now += 3.0 if torch.is_grad_enabled() else 1.0
        return torch.as_tensor(self.layer(x))


def validated(model: nn.Module, x: torch.Tensor) -> None:
    """A step, and a validation that keeps its graph."""
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    model(x).sum().backward()
    optimizer.step()
    model.eval()
    model(x)
    model.train()


class Merging(nn.Module):
    """What it has learnt is a part of its weight in evaluation mode alone."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.learnt = nn.Linear(4, 4), nn.Parameter(torch.ones(4, 4))

    def train(self, mode: bool = True) -> Merging:
        if mode != self.training:
            self.layer.weight.data += self.learnt.detach() * (-1 if mode else 1)
        return super().train(mode)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found = self.layer(x)
        return torch.as_tensor(found + x @ self.learnt.T if self.training else found)


def test_what_a_layer_merges_to_be_evaluated_is_taken_back(host: Host) -> None:
    model, x = nn.Sequential(Merging()), torch.randn(8, 4)
    validated(model, x)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    assert times_with_graphs(host, 0.01) is not None
    assert all(torch.allclose(value, before[name]) for name, value in model.state_dict().items())


def test_it_is_tried_and_the_script_does_not_see_it(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, x = Clocked(), torch.randn(8, 4)
    monkeypatch.setattr(module, "perf_counter", lambda: model.now)
    validated(model, x)
    model.layer[1].eval()  # the script has frozen it
    state = {name: value.clone() for name, value in model.state_dict().items()}
    random, calls = torch.random.get_rng_state(), len(model.modes)
    assert times_with_graphs(host, 1.0) == 3.0
    assert not any(model.modes[calls:]), "in evaluation mode"
    assert model.training
    assert not model.layer[1].training
    assert model.layer[2].training
    assert torch.equal(torch.random.get_rng_state(), random)
    for name, value in model.state_dict().items():
        assert torch.equal(value, state[name]), name


def test_of_a_validation_without_graphs_nothing_is_asked(host: Host) -> None:
    model, x = Clocked(), torch.randn(8, 4)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    model(x).sum().backward()
    optimizer.step()
    model.eval()
    with torch.no_grad():
        model(x)
    assert times_with_graphs(host) is None


def test_a_batch_that_is_gone_cannot_be_judged_again(host: Host) -> None:
    model = Clocked()
    validated(model, torch.randn(8, 4))
    assert times_with_graphs(host) is None
