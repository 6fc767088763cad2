"""Channels are removed for real, and what is left gives what the masked model gave."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

from outpace.errors import UsageError
from outpace.measure.flops import StepCounter
from outpace.train.compress.channels import importance, least, masked, narrow, remove
from outpace.train.compress.channels import same as same_outputs
from outpace.train.compress.groups import groups
from outpace.train.compress.judging import Judge, Judging
from outpace.train.compress.weights import prunable
from outpace.train.data import Batches
from outpace.train.objective import Objective
from tests.train.compress.nets import NETS, learnt, net
from tests.train.toys import accuracy, same


def flops(model: nn.Module, x: torch.Tensor) -> int:
    with torch.no_grad(), StepCounter() as counter:
        model(x)
    return counter.count.flops  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("share", [0.3, 0.7])
def test_what_is_left_gives_what_the_masked_model_gave(name: str, share: float) -> None:
    model, x = net(name)
    before = copy.deepcopy(model)
    found = groups(model, (x,), {})
    torch.manual_seed(1)
    removed = least(
        {g.name: torch.rand(g.size) for g in found}, dict.fromkeys([g.name for g in found], share)
    )
    with torch.no_grad():
        plain = model(x)
        with masked(model, found, removed):
            expected = model(x)
        assert same(dict(model.state_dict()), dict(before.state_dict()))
        remove(model, found, removed)
        assert torch.allclose(model(x), expected, rtol=1e-10, atol=1e-12)
    assert not torch.allclose(plain, expected, rtol=1e-3)
    assert sum(p.numel() for p in model.parameters()) < sum(p.numel() for p in before.parameters())
    assert flops(model, x) < flops(before, x)
    for group in found:
        for layer in group.makers:
            weight: Any = model.get_submodule(layer).weight
            assert group.size - len(removed[group.name]) in weight.shape[:2]


def test_bit_for_bit_where_sums_are_exact() -> None:
    """With whole numbers nothing is rounded, in whatever order it is added."""
    chance = torch.Generator().manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 6, 3), nn.ReLU(), nn.Flatten(), nn.Linear(54, 4)
    ).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(torch.randint(-3, 4, weight.shape, generator=chance))
        x = torch.randint(-3, 4, (4, 3, 7, 7), generator=chance).float()
        found = groups(model, (x,), {})
        removed = least(importance(model, found), {"0": 0.5, "2": 0.5})
        with masked(model, found, removed):
            expected = model(x)
        remove(model, found, removed)
        assert torch.equal(model(x), expected)
    assert (model[0].out_channels, model[2].in_channels, model[2].out_channels) == (4, 4, 3)
    assert model[5].in_features == 27


def judging_of(model: nn.Module, valid: Any, loss: Any = None) -> Judging:
    judge = Judge(accuracy, Batches([valid], torch.device("cpu")))
    losses = [lambda m: Objective(loss)(m, valid)] if loss is not None else None
    return Judging(judge, judge, model, 1.0, losses)


def test_a_trained_net_loses_channels_and_not_its_accuracy() -> None:
    model, valid = learnt()
    judging = judging_of(copy.deepcopy(model), valid)
    made = narrow(model, judging, 0.01)[0]
    assert judging.fall(made.model) <= 0.01
    assert made.model[2].out_features < 150
    assert "channels are removed, by L2 norm" in made.said
    assert sum(w.numel() for w in prunable(made.model).values()) < 3000


def test_taylor_sees_channels_that_nobody_reads() -> None:
    """A channel with large weights, and readers that are all zero; the norm takes it for important."""
    model, valid = learnt()
    with torch.no_grad():
        model[0].weight[:4] *= 10.0
        model[2].weight[:, :4] = 0.0
        model[0].weight[4:] *= 0.5
        model[2].weight[:, 4:] *= 2.0
    found = groups(model.eval(), (valid[0],), {})
    loss = judging_of(model, valid, nn.functional.cross_entropy).losses
    by_norm, by_taylor = importance(model, found), importance(model, found, loss)
    assert sorted(least(by_taylor, {"0": 0.25})["0"].tolist()) == [0, 1, 2, 3]
    assert not set(least(by_norm, {"0": 0.25})["0"].tolist()) & {0, 1, 2, 3}
    assert all(p.grad is None for p in model.parameters())


class WithoutGradients(nn.Module):
    """As a model that was written to be used, and not to be trained."""

    def __init__(self, own: nn.Module) -> None:
        super().__init__()
        self.own = own

    @torch.no_grad()
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.own(x)
        return found


def test_without_gradients_it_goes_by_norms_and_says_so() -> None:
    model, valid = learnt()
    model = WithoutGradients(model).eval()
    model.own[0].weight.requires_grad_(False)  # type: ignore[index]
    judging = judging_of(copy.deepcopy(model), valid, nn.functional.cross_entropy)
    made = narrow(model, judging, 0.05)[0]
    assert "by L2 norm, as the loss gives no gradients (element 0 of tensors" in made.said
    assert [p.requires_grad for p in made.model.parameters()].count(False) == 1


class Masks(nn.Module):
    """Gives, beside its numbers, which of them count, and some that are none."""

    def __init__(self, own: nn.Module) -> None:
        super().__init__()
        self.own = own

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        return self.own(x), x > 0, x[:0]


def test_outputs_that_are_no_numbers_are_compared_too() -> None:
    model, valid = learnt()

    def first(outputs: Any, targets: torch.Tensor) -> torch.Tensor:
        return accuracy(outputs[0], targets)

    judge = Judge(first, Batches([valid], torch.device("cpu")))
    model = Masks(model).eval()
    made = narrow(model, Judging(judge, judge, copy.deepcopy(model), 1.0), 0.05)[0]
    assert "channels are removed" in made.said
    one, two = torch.tensor([True, False]), torch.zeros(0)
    assert same_outputs([one, two], [one.clone(), two.clone()])
    assert not same_outputs([one, two], [~one, two])
    assert not same_outputs([two], [torch.zeros(0, 2)])


def test_where_no_channel_can_go_it_is_told() -> None:
    model = nn.Sequential(nn.Linear(8, 3))
    valid = learnt()[1]
    with pytest.raises(UsageError, match="no layer of Sequential has channels"):
        narrow(model, judging_of(model, valid), 1.0)
    trained, valid = learnt()
    with pytest.raises(UsageError, match="not even 12% of them, within what the metric may fall"):
        narrow(trained, judging_of(copy.deepcopy(trained), valid), -0.5)


class Aided(nn.Module):
    """A second head is called in training alone."""

    def __init__(self, own: nn.Module) -> None:
        super().__init__()
        self.own = own
        self.aid = nn.Linear(own[0].out_features, 3)  # type: ignore[index]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.own(x)
        if self.training:
            found = found + 0.3 * self.aid(self.own[0](x))  # type: ignore[index]
        return found


def test_what_could_not_be_trained_any_more_is_refused() -> None:
    model, valid = learnt()
    model = Aided(model).eval()
    judging = judging_of(copy.deepcopy(model), valid)
    with pytest.raises(UsageError, match="in training alone reads channels"):
        narrow(model, judging, 0.05)
    assert not model.training


def test_what_is_infinite_is_the_same_and_short_floats_have_coarse_steps() -> None:
    one = torch.tensor([1.0, -torch.inf, 2.0])
    assert same_outputs([one], [one * 1.0001])
    assert not same_outputs([one], [torch.tensor([1.0, 3.0, 2.0])])
    assert not same_outputs([one], [-one])
    short = torch.tensor([1.0, 0.51], dtype=torch.bfloat16)
    assert same_outputs([short], [torch.tensor([1.0, 0.5117], dtype=torch.bfloat16)])
    assert not same_outputs([short], [torch.tensor([1.0, 0.6], dtype=torch.bfloat16)])
