"""Dropout that goes on in evaluation mode is named with its line; what means to drop is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.remedies.trainings import hosted
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from outpace.seams.module import ModuleSeam
from outpace.seams.root import Evaluations


@pytest.fixture(autouse=True)
def nothing_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever other tests have compiled in this process."""
    monkeypatch.setattr("outpace.seams.drops.graphs_compiled", lambda: 0)


Change = Callable[[nn.Module, torch.Tensor], torch.Tensor]


class Net(nn.Module):
    def __init__(self, change: Change) -> None:
        super().__init__()
        self.layer, self.change = nn.Linear(4, 4), change
        self.drop = nn.Dropout(0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.change(self, self.layer(x))


def untold(net: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return F.dropout(x, 0.2)


def told(net: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return F.dropout(x, 0.2, training=net.training)


def none(net: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return F.dropout(x + torch.randn_like(x), 0.0)


def made_anew(net: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return nn.Dropout(0.2)(x)


def attends(net: nn.Module, x: torch.Tensor) -> torch.Tensor:
    rows = x[None]
    return F.scaled_dot_product_attention(rows, rows, rows, dropout_p=0.2)[0]


def attends_placed(net: nn.Module, x: torch.Tensor) -> torch.Tensor:
    rows = x[None]
    return F.scaled_dot_product_attention(rows, rows, rows, None, 0.2)[0]


def attends_in_training(net: nn.Module, x: torch.Tensor) -> torch.Tensor:
    rows, p = x[None], 0.2 if net.training else 0.0
    return F.scaled_dot_product_attention(rows, rows, rows, dropout_p=p)[0]


def layer(net: Any, x: torch.Tensor) -> torch.Tensor:
    out: torch.Tensor = net.drop(x)
    return out


def noise(net: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return x + torch.randn_like(x)


def trained(net: nn.Module, evaluate: Callable[[nn.Module], Any] = nn.Module.eval) -> list[float]:
    """Losses, and what three validations of two batches gave."""
    torch.manual_seed(0)
    optimizer = torch.optim.SGD(net.parameters(), 0.01)
    train = DataLoader(TensorDataset(torch.randn(32, 4)), batch_size=4)
    valid = DataLoader(TensorDataset(torch.randn(8, 4)), batch_size=4)
    found = []
    for _ in range(3):
        net.train()
        for (x,) in train:
            loss = net(x).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            found.append(float(loss.detach()))
        evaluate(net)
        with torch.no_grad():
            found += [float(net(x).sum()) for (x,) in valid]
    return found


def seen(change: Change, evaluate: Callable[[nn.Module], Any] = nn.Module.eval) -> Evaluations:
    """What is noted of a training, whose numbers stay as they are."""
    torch.manual_seed(1)
    net = Net(change)
    start = {name: value.clone() for name, value in net.state_dict().items()}
    wanted = trained(net, evaluate)
    net.load_state_dict(start)
    with hosted() as host:
        assert trained(net, evaluate) == wanted
        seam = host.seams["module"]
        assert isinstance(seam, ModuleSeam)
        assert not host.broken
        return seam.evaluations()


@pytest.mark.parametrize(
    ("change", "by"),
    [
        (untold, "dropout"),
        (made_anew, "dropout"),
        (attends, "scaled_dot_product_attention"),
        (attends_placed, "scaled_dot_product_attention"),
    ],
)
def test_what_drops_in_evaluation_is_named(change: Change, by: str) -> None:
    found = seen(change)
    assert found.drops == by
    assert found.drops_where is not None
    line = change.__code__.co_firstlineno + (2 if by != "dropout" else 1)
    assert found.drops_where.endswith(f"test_drops.py:{line}")


@pytest.mark.parametrize("change", [told, none, attends_in_training, layer, noise])
def test_what_is_told_of_the_mode_or_draws_else_is_not(change: Change) -> None:
    assert seen(change).drops is None


def test_where_models_are_compiled_no_call_is_looked_into(monkeypatch: pytest.MonkeyPatch) -> None:
    """They would be compiled anew beneath the mode."""
    monkeypatch.setattr("outpace.seams.drops.graphs_compiled", lambda: 1)
    assert seen(untold).drops is None


def test_layers_left_in_training_mode_mean_to_drop() -> None:
    """As of a model whose doubt is told by how far its answers lie apart."""

    def all_but_dropout(net: nn.Module) -> None:
        net.eval()
        for part in net.modules():
            if isinstance(part, nn.Dropout):
                part.train()

    assert seen(layer, all_but_dropout).drops is None
