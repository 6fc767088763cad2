"""How weights and what optimizers keep of them lie in memory."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
import torch
from tests.remedies.trainings import hosted
from torch import nn

from outpace.seams.layout import lay_out, lay_states, to_channels_last
from outpace.seams.setup import AS_IS


def step(net: nn.Module, optimizer: torch.optim.Optimizer, set_to_none: bool) -> None:
    net(torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))).sum().backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none)


@pytest.mark.filterwarnings("error:grad and param do not obey")  # torch warns of it once a process
@pytest.mark.parametrize("kind", [torch.optim.AdamW, torch.optim.SGD, torch.optim.Adagrad])
@pytest.mark.parametrize("back", [False, True])
@pytest.mark.parametrize("set_to_none", [True, False])
def test_a_fused_optimizer_goes_on_as_it_would(kind: Any, back: bool, set_to_none: bool) -> None:
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Conv2d(3, 5, 3), nn.ReLU(), nn.Conv2d(5, 4, 3))
    net = copy.deepcopy(plain)
    more = {"momentum": 0.9} if kind is torch.optim.SGD else {}
    optimizers = [kind(each.parameters(), 0.01, fused=True, **more) for each in (plain, net)]
    for number in range(4):
        if number == 1:
            lay_out(net, optimizers[1:], channels_last=True)
        if number == 2 and back:
            lay_out(net, optimizers[1:], channels_last=False)
        step(plain, optimizers[0], set_to_none)
        step(net, optimizers[1], set_to_none)
    for one, other in zip(plain.parameters(), net.parameters(), strict=True):
        assert torch.allclose(one, other, atol=1e-5)
    weight = net[0].weight
    assert weight.is_contiguous(memory_format=torch.channels_last) != back


def test_weights_that_others_have_too_stay_where_they_are() -> None:
    """An actor in a fork acted for good by the weights of its first call."""
    shared, flat = nn.Conv2d(3, 4, 3).share_memory(), nn.Conv2d(3, 4, 3)
    whole = torch.zeros(200)
    flat.weight.data = whole[: flat.weight.numel()].view_as(flat.weight)
    optimizer = torch.optim.SGD(shared.parameters(), 0.1, momentum=0.9)
    shared(torch.randn(2, 3, 8, 8)).sum().backward()
    optimizer.step()
    for net in (shared, flat):
        at = net.weight.data_ptr()
        lay_out(net, [optimizer], channels_last=True)
        assert net.weight.data_ptr() == at
        assert net.weight.is_contiguous()
    assert shared.weight.is_shared()
    assert optimizer.state[shared.weight]["momentum_buffer"].is_contiguous()


def test_other_weights_stay_as_they_lie() -> None:
    net = nn.Sequential(nn.Conv3d(2, 2, 3), nn.Linear(4, 2))
    lay_out(net, [], channels_last=True)
    assert all(weight.is_contiguous() for weight in net.parameters())
    for tensor in (torch.zeros(2, 3), torch.zeros(1, 2, 3, 4, dtype=torch.long)):
        assert to_channels_last(tensor) is tensor


def test_what_a_model_gives_lies_as_it_would() -> None:
    """A metric may ask for a view of it."""
    net = nn.Conv2d(3, 4, 3)
    images = torch.randn(2, 3, 8, 8, requires_grad=True)
    wanted = net(images)
    with hosted(replace(AS_IS, channels_last=True)):
        for _ in range(2):
            found = net(images)
            assert torch.allclose(found.view(2, -1), wanted.view(2, -1), atol=1e-5)


def by_hand(net: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Steps along gradients that lie transposed, as sums of products do."""
    for number in range(4):
        net(torch.full((2, 5), number / 4)).sum().backward()
        for weight in net.parameters():
            assert weight.grad is not None
            weight.grad = torch.arange(weight.numel()).reshape(weight.T.shape).T * 0.1
        optimizer.step()


@pytest.mark.filterwarnings("ignore:grad and param do not obey")
@pytest.mark.filterwarnings("ignore:The use of `x.T` on tensors of dimension other than 2")
@pytest.mark.parametrize("kind", [torch.optim.AdamW, torch.optim.SGD, torch.optim.Adagrad])
def test_gradients_that_a_script_lays_otherwise_are_not_stepped_fused(kind: Any) -> None:
    """torch's fused kernels on a CPU take them for others."""
    plain = nn.Linear(5, 3)
    net = copy.deepcopy(plain)
    by_hand(plain, kind(plain.parameters(), 0.01))
    optimizer = kind(net.parameters(), 0.01)
    with hosted(replace(AS_IS, fused=True)) as host:
        by_hand(net, optimizer)
        assert not optimizer.param_groups[0]["fused"]
        assert host.seams["optimizer"].mislays  # type: ignore[attr-defined]
    for one, other in zip(plain.parameters(), net.parameters(), strict=True):
        assert torch.equal(one, other)


def test_a_sparse_momentum_stays_as_it_is() -> None:
    table = nn.Embedding(8, 4, sparse=True)
    optimizer = torch.optim.SGD(table.parameters(), 0.1, momentum=0.9)
    table(torch.tensor([1, 2])).sum().backward()
    optimizer.step()
    buffer = optimizer.state[table.weight]["momentum_buffer"]
    assert buffer.is_sparse
    lay_states(optimizer)
    assert optimizer.state[table.weight]["momentum_buffer"] is buffer


@pytest.mark.parametrize("own", [False, True])
def test_a_loaded_state_lies_as_the_weights_do(own: bool) -> None:
    """It was saved by a run whose weights lay otherwise."""
    torch.manual_seed(0)
    plain = nn.Conv2d(3, 5, 3)
    first = torch.optim.AdamW(plain.parameters(), 0.01)
    step(plain, first, True)
    net, saved = copy.deepcopy(plain), copy.deepcopy(first.state_dict())
    step(plain, first, True)
    setup = replace(AS_IS, channels_last=True, fused=None if own else True)
    with hosted(setup):
        optimizer = torch.optim.AdamW(net.parameters(), 0.01)
        optimizer.load_state_dict(saved)
        optimizer.param_groups[0]["fused"] = own or None
        step(net, optimizer, True)
    assert torch.allclose(plain.weight, net.weight, atol=1e-6)
