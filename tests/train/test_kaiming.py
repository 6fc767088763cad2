"""kaiming: deviations of first weights by the activation after them, and what that gives."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from outpace.train.run import Run
from outpace.train.strategies import Kaiming, Lsuv, OneCycle, Strategy
from tests.train.toys import CLASSES, fit, points


class Begun:
    """The model when training begins."""

    def begin(self, run: Run) -> None:
        self.module: Any = copy.deepcopy(run.module)


class Mixed(nn.Module):
    """Activations as functions and as modules: [N, 8] -> [N, 3]."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.norm = nn.Linear(8, 400), nn.LayerNorm(400)
        self.second, self.third = nn.Linear(400, 300), nn.Linear(300, 200)
        self.leaky = nn.LeakyReLU(0.5)
        self.convolution = nn.Conv1d(1, 64, 25, stride=25)
        self.fourth, self.last = nn.Linear(512, 100), nn.Linear(100, CLASSES)
        self.frozen = nn.Linear(CLASSES, CLASSES).requires_grad_(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.norm(self.first(x)), inplace=True)
        x = self.leaky(self.third(torch.tanh(self.second(x))))
        x = self.convolution(x.unsqueeze(1)).flatten(1).sigmoid()
        found: torch.Tensor = self.frozen(self.last(F.gelu(self.fourth(x))))
        return found


def test_deviations_are_those_of_the_papers() -> None:
    begun = Begun()
    result = fit(model=Mixed(), strategies=[Kaiming()], callbacks=[begun], steps=1)
    net = begun.module
    glorot = {"second": 5 / 3 * math.sqrt(2 / 700), "last": math.sqrt(2 / 103)}
    glorot["convolution"] = math.sqrt(2 / (25 + 64 * 25))
    he = {
        "first": math.sqrt(2 / 8),
        "third": math.sqrt(2 / (1 + 0.25) / 300),
        "fourth": math.sqrt(1 / 0.4252 / 512),  # of gelu(z)^2 the mean is 0.4252
    }
    for name, deviation in (he | glorot).items():
        layer = net.get_submodule(name)
        assert float(layer.weight.std()) == pytest.approx(deviation, rel=0.1), name
        assert not layer.bias.any()
    assert torch.equal(net.frozen.weight, Mixed().frozen.weight)
    note = next(note for note in result.notes if note.startswith("kaiming"))
    assert "weights of 6 layers are drawn" in note
    for name in ("relu", "leaky_relu", "gelu", "tanh", "sigmoid", "nothing"):
        assert f"1 before {name}" in note


def deep(layers: int = 20) -> nn.Sequential:
    torch.manual_seed(0)
    body = [each for _ in range(layers) for each in (nn.Linear(64, 64), nn.ReLU())]
    return nn.Sequential(nn.Linear(8, 64), nn.ReLU(), *body, nn.Linear(64, CLASSES))


def spread(*strategies: Strategy) -> float:
    """Between samples, of what the last hidden layer gives before the first step."""
    begun = Begun()
    fit(
        model=deep(),
        strategies=[*strategies],
        callbacks=[begun],
        steps=1,
        valid=None,
        metric=None,
    )
    with torch.no_grad():
        return float(begun.module[:-1](points(500, seed=3)[0]).std(0).mean())


def test_signals_live_through_layers_of_relu() -> None:
    assert spread() < 1e-5
    assert spread(Kaiming()) > 0.05


def test_a_deep_net_learns_from_the_first_epochs_on() -> None:
    costs = [
        fit(model=deep(), strategies=[*more, OneCycle(rate=0.001)], epochs=10, metric=None).metric
        for more in ([Kaiming()], [])
    ]
    ours, plain = (cost or math.inf for cost in costs)
    assert ours < 0.7 * plain


class Tied(nn.Module):
    """Its first and its last layer share their weights: [N] -> [N, 8]."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding, self.inner = nn.Embedding(8, 16), nn.Linear(16, 16)
        self.head = nn.Linear(16, 8)
        self.head.weight = self.embedding.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.head(torch.relu(self.inner(self.embedding(x))))
        return found


@pytest.mark.parametrize("kind", [Kaiming, Lsuv])
def test_the_seed_decides_and_shared_weights_stay(kind: type[Strategy]) -> None:
    chance = torch.Generator().manual_seed(0)
    x, y = torch.randint(8, (24,), generator=chance), torch.randint(8, (24,), generator=chance)
    weights = []
    for seed in (0, 0, 1):
        begun = Begun()
        fit(
            model=Tied(),
            train=[(x, y)],
            strategies=[kind()],
            callbacks=[begun],
            steps=1,
            seed=seed,
            valid=None,
            metric=None,
        )
        assert torch.equal(begun.module.embedding.weight, Tied().embedding.weight)
        weights.append(begun.module.inner.weight)
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_an_input_has_a_part_in_the_outputs_of_its_group_alone() -> None:
    begun = Begun()
    net = nn.Sequential(
        nn.Linear(8, 640),
        nn.Unflatten(1, (64, 10)),
        nn.Conv1d(64, 64, 9, groups=64),
        nn.Conv1d(64, 128, 2, groups=2),
        nn.Flatten(),
        nn.Linear(128, CLASSES),
    )
    fit(model=net, strategies=[Kaiming()], callbacks=[begun], steps=1)
    deviations = [float(begun.module[at].weight.std()) for at in (2, 3)]
    wanted = [math.sqrt(2 / (9 + 9)), math.sqrt(2 / (2 * 32 + 2 * 64))]
    assert deviations == pytest.approx(wanted, rel=0.1)
