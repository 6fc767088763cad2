"""Small weights become zero, as many of each layer as it bears."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from outpace.errors import UsageError
from outpace.train.compress import scan
from outpace.train.compress.judging import Judge, Judging
from outpace.train.compress.weights import mask, prunable, prune, sparse, zeros_kept
from outpace.train.data import Batches
from tests.train.compress.nets import learnt
from tests.train.toys import Reader, accuracy


def test_the_smallest_go() -> None:
    weight = torch.tensor([[0.1, -3.0, 0.2], [-0.05, 1.0, 0.3]])
    assert mask(weight, 0.5).tolist() == [[False, True, False], [False, True, True]]
    assert mask(torch.zeros(2, 5), 0.4).sum() == 6  # as many as asked, where all are the same
    assert mask(weight, 0.0).all()


def test_weights_of_all_layers_are_found_once() -> None:
    assert list(prunable(Reader())) == [
        "memory.weight_ih_l0", "memory.weight_hh_l0", "head.weight",
    ]  # fmt: skip
    tied = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    tied[1].weight = tied[0].weight
    assert list(prunable(tied)) == ["0.weight"]


def test_what_weights_are_made_of_is_not_pruned() -> None:
    """Without their gains neurons are dead, and a direction of zeros is no number."""
    net = nn.Sequential(
        nn.utils.weight_norm(nn.Linear(8, 8)),
        nn.utils.parametrizations.weight_norm(nn.Linear(8, 8)),
        nn.Linear(8, 8),
    )
    assert list(prunable(net)) == ["2.weight"]
    assert not prunable(nn.utils.weight_norm(nn.LSTM(4, 4), "weight_hh_l0"))
    prune(net, dict.fromkeys(prunable(net), 0.9))
    assert net(torch.ones(2, 8)).isfinite().all()


def test_names_and_shares_that_cannot_be_are_told() -> None:
    model = nn.Sequential(nn.Linear(4, 4))
    with pytest.raises(UsageError, match=r"there is no weight 'a' to prune") as told:
        prune(model, {"a": 0.5})
    assert told.value.hint == "there are: 0.weight"
    with pytest.raises(UsageError, match=r"1 of 0.weight cannot be pruned"):
        prune(model, {"0.weight": 1.0})


def share_of_zeros(model: nn.Module) -> float:
    weights = list(prunable(model).values())
    return sum(int((w == 0).sum()) for w in weights) / sum(w.numel() for w in weights)


def test_a_trained_net_keeps_its_accuracy_where_the_scan_is_heeded() -> None:
    """The large second layer bears what the small first one does not."""
    model, valid = learnt()
    judge = Judge(accuracy, Batches([valid], torch.device("cpu")))
    judging = Judging(judge, judge, copy.deepcopy(model), 1.0)
    heeded = sparse(copy.deepcopy(model), judging, 0.01)[0]
    sparsity = share_of_zeros(heeded.model)
    assert sparsity >= 0.8
    assert judging.fall(heeded.model) <= 0.01
    assert heeded.shares["2.weight"] > heeded.shares.get("0.weight", 0.0)
    uniform = copy.deepcopy(model)
    prune(uniform, dict.fromkeys(prunable(uniform), sparsity))
    assert share_of_zeros(uniform) == pytest.approx(sparsity, abs=0.01)
    assert judging.fall(uniform) > 0.1


def test_a_loss_may_call_the_model_twice() -> None:
    model, x = nn.Linear(4, 3), torch.randn(5, 4)
    prune(model, {"weight": 0.5})
    zeros = model.weight == 0
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with zeros_kept(model):
        for _ in range(2):
            (model(x).square().sum() + model(x + 1.0).square().sum()).backward()
            optimizer.step()
    assert torch.equal(model.weight == 0, zeros)


def test_each_layers_share_comes_of_its_own_curve() -> None:
    """Falls that add up: 0.5 of `a` costs 1, of `b` 3; nothing else costs."""
    costs = {"a": 1.0, "b": 3.0, "c": 0.0}
    asked = []

    def fall(shares: dict[str, float]) -> float:
        asked.append(shares)
        return sum(costs[n] * (share >= 0.5) for n, share in shares.items())

    curves = scan.curves(costs, (0.25, 0.5, 0.75), fall, 2.0)
    assert curves["b"] == ((0.25, 0.0), (0.5, 3.0))  # what lies beyond is not looked at
    assert scan.shares(curves, fall, 2.0) == {"a": 0.75, "b": 0.25, "c": 0.75}
    assert scan.shares(curves, fall, 0.5) == {"a": 0.25, "b": 0.25, "c": 0.75}
    assert len(asked) < 15


def test_layers_that_bear_it_alone_and_not_together_are_given_less() -> None:
    def fall(shares: dict[str, float]) -> float:
        return sum(shares.values()) ** 2

    curves = scan.curves("abcd", (0.2, 0.4, 0.6, 0.8), fall, 0.7)
    found = scan.shares(curves, fall, 0.7)
    assert found == dict.fromkeys("abcd", 0.2)
    assert scan.shares(curves, fall, 0.01) == {}
