"""Which sigmoids and tanhs are judged as hidden units, and what is kept of them."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from outpace.measure.activations import Activations
from outpace.measure.dispatch import OperatorWatch, name_of, phase

BATCH = 40


class Watch(OperatorWatch):  # type: ignore[no-untyped-call]
    def __init__(self) -> None:
        super().__init__()
        self.activations = Activations()

    def see(self, operator: Any, args: Any, kwargs: Any, out: Any) -> None:
        if phase() == "backward":
            self.activations.begin()
        else:
            self.activations.see(name_of(operator).rstrip("_"), args, kwargs, out)


class Net(nn.Module):
    """Layers to put together, a gate that is learnt and the steepness of it."""

    def __init__(self) -> None:
        super().__init__()
        self.enc, self.dec, self.other = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)
        self.frozen = nn.Linear(8, 8).requires_grad_(False)
        self.gate, self.steep = nn.Parameter(torch.randn(8)), nn.Parameter(torch.ones(()))
        self.norm = nn.BatchNorm1d(8)
        for each in (self.enc, self.dec):
            nn.init.constant_(each.bias, 30.0)


Forward = Callable[[Net, torch.Tensor], torch.Tensor]


def told(forward: Forward) -> dict[str, list[float]]:
    """Shares of the sigmoids and tanhs that are judged in a step of a loss."""
    torch.manual_seed(0)
    watch, net = Watch(), Net()
    with watch:
        forward(net, torch.randn(BATCH, 8)).backward()  # type: ignore[no-untyped-call]
    assert watch.failure is None
    return watch.activations.saturated


def recurrent(net: Net, x: torch.Tensor) -> torch.Tensor:
    h = torch.zeros(BATCH, 8)
    for _ in range(2):
        h = torch.tanh(net.enc(x) + net.other(h))
    return net.dec(h).mean()


@pytest.mark.parametrize(
    ("forward", "layers"),
    [
        (lambda net, x: net.dec(net.enc(x).sigmoid()).mean(), ["sigmoid 1"]),
        (lambda net, x: net.dec(F.dropout((net.enc(x) / 2).tanh(), 0.1)).mean(), ["tanh 1"]),
        (lambda net, x: net.dec(net.norm(net.enc(x)).add(30).sigmoid()).mean(), ["sigmoid 1"]),
        (lambda net, x: net.dec(x + net.enc(x).tanh()).mean(), ["tanh 1"]),
        (lambda net, x: F.mse_loss(net.dec(net.enc(x).sigmoid()).sigmoid(), x), ["sigmoid 1"]),
        (recurrent, ["tanh 1", "tanh 2"]),
    ],
)
def test_hidden_units_are_judged(forward: Forward, layers: list[str]) -> None:
    found = told(forward)
    assert sorted(found) == layers
    assert found[layers[0]] == [pytest.approx(1.0)]


def both(net: Net, x: torch.Tensor, first: bool) -> torch.Tensor:
    """An image that is given to the loss, and to the encoder again."""
    code = net.enc(x)
    image = net.dec(code).sigmoid()
    early = F.mse_loss(image.view(-1), x.view(-1)) if first else 0.0
    again = net.enc(image).sub(code).square().mean()
    return again + early if first else again + (x - image).abs().mean()


def rendered(net: Net, x: torch.Tensor) -> torch.Tensor:
    """Colours weighted by how dense they are, as a sigmoid tells."""
    dense = (net.enc(x) * net.steep).sigmoid()
    fixed = (net.enc(x) * 64).sigmoid()
    colours = net.other(x)
    one, other = (torch.einsum("ns,nc->sc", each, colours) for each in (dense, fixed))
    return (one + other).mean()


@pytest.mark.parametrize(
    "forward",
    [
        lambda net, x: F.linear(x, net.other.weight * torch.sigmoid(9 * net.gate)).mean(),
        lambda net, x: F.linear(x, torch.sigmoid(100 * net.other.weight)).mean(),
        lambda net, x: net.dec(net.other(x) * net.enc(x).sigmoid()).mean(),
        lambda net, x: net.dec((net.enc(x) * net.steep).tanh()).mean(),
        rendered,
        lambda net, x: both(net, x, first=True),
        lambda net, x: both(net, x, first=False),
        lambda net, x: F.binary_cross_entropy(y := net.enc(x).sigmoid(), x.sigmoid()) + net.dec(y).mean(),
        lambda net, x: net.frozen(net.enc(x).sigmoid()).mean(),
        lambda net, x: net.dec(torch.tanh(100 * x)).mean(),
    ],
    ids=["a gate of weights", "weights", "a gate of units", "steep", "rendered", "told and encoded",
         "encoded and told", "probabilities", "judged by a frozen net", "data"],
)  # fmt: skip
def test_what_is_meant_to_reach_its_limits_is_not_judged(forward: Forward) -> None:
    assert told(forward) == {}


def test_nothing_of_an_activation_is_held() -> None:
    watch, net = Watch(), Net()
    for act in (torch.relu, torch.sigmoid):
        with watch:
            hidden = act(net.enc(torch.randn(BATCH, 8)))
            scaled = 2 * hidden
            held = [weakref.ref(each) for each in (hidden, scaled)]
            del hidden, scaled
            assert [each() for each in held] == [None, None]
        watch.activations.begin()
    assert watch.failure is None


def test_a_long_recurrence_is_followed_in_time_that_grows_with_it() -> None:
    watch, net = Watch(), Net()
    with watch:
        h, x = torch.zeros(BATCH, 8), torch.zeros(BATCH, 8)
        for _ in range(300):
            h = torch.tanh(net.enc(x) + net.other(h))
        net.dec(h).mean().backward()  # type: ignore[no-untyped-call]
    assert watch.failure is None
    assert len(watch.activations.saturated) == 300
    assert all(map(bool, watch.activations.saturated.values()))


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_what_it_cannot_look_into_is_left_out() -> None:
    watch = Watch()
    with watch:
        torch.relu(torch.eye(BATCH).to_sparse())
        torch.tanh(torch.zeros(4, 4, dtype=torch.complex64))
        torch.relu(torch.zeros(0, 0))
        torch.sigmoid(torch.zeros(0, 4))
        torch.relu(torch.nested.nested_tensor([torch.zeros(2, 3), torch.zeros(4, 3)]))
    assert watch.failure is None
