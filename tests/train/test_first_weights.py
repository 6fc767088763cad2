"""What training begins with: class_prior, lsuv, transfer, each on a case made for it."""

from __future__ import annotations

import copy
import math
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from outpace.errors import DataError, UsageError
from outpace.measure.generators import random_states
from outpace.serve.loader import Loader
from outpace.train.run import Run
from outpace.train.strategies import (
    Bf16,
    ClassPrior,
    ClassWeights,
    Constant,
    Kaiming,
    Lsuv,
    OneCycle,
    Strategy,
    Transfer,
)
from tests.train.toys import Slow, Time, fit, model, points, ready, same


class After(Strategy):
    """Notes all there is once weights are made."""

    name = "after"

    def __init__(self) -> None:
        self.seen: dict[str, Any] = {}

    def begin(self, run: Run) -> None:
        self.seen = copy.deepcopy(
            {
                "parameters": dict(run.module.named_parameters()),
                "buffers": dict(run.module.named_buffers()),
                "random": random_states(),
                "data": run.train.state_dict(),
                "training": [m.training for m in run.module.modules()],
            }
        )


CHANGED = {
    "class_prior": {"4.bias"},
    "lsuv": {"0.weight", "4.weight"},
    "kaiming": {"0.weight", "0.bias", "4.weight", "4.bias"},
}


@pytest.mark.parametrize("strategy", [ClassPrior(), Lsuv(), Kaiming()], ids=CHANGED)
@pytest.mark.parametrize("way", ["batches", "Loader"])
def test_nothing_but_the_weights_is_touched(strategy: Strategy, way: str) -> None:
    seen = []
    for strategies in ([], [strategy]):
        after = After()
        net = model(dropout=0.3, norm=True)
        net[1].eval()
        data = Loader(torch.utils.data.TensorDataset(*points()), 24, executor="none")
        fit(
            model=net,
            train=ready() if way == "batches" else data,
            strategies=[*strategies, after, Constant(rate=0.0)],
            steps=1,
        )
        seen.append(after.seen)
    before, made = seen
    changed = {n for n, p in made.pop("parameters").items() if not same(p, before["parameters"][n])}
    before.pop("parameters")
    assert same(before, made)
    assert changed == CHANGED[strategy.name]


# --- class_prior -----------------------------------------------------------------------------


def rare(count: int = 600, seed: int = 0) -> list[Any]:
    """Three classes of 94, 4 and 2 percent, with little to tell them by."""
    chance = torch.Generator().manual_seed(seed)
    y = torch.multinomial(torch.tensor([0.94, 0.04, 0.02]), count, True, generator=chance)
    x = torch.randn(count, 8, generator=chance)
    x[:, 0] += y
    return list(zip(x.split(20), y.split(20), strict=True))


def first_epoch(*strategies: Strategy, **given: Any) -> float:
    loss = fit(
        valid=None, metric=None, epochs=1, strategies=[*strategies, Constant(rate=0.01)], **given
    ).history[0]
    assert loss.train_loss is not None
    return loss.train_loss


def test_the_first_epoch_is_not_spent_on_how_often_classes_come() -> None:
    ours = first_epoch(ClassPrior(), model=model(), train=rare())
    plain = first_epoch(model=model(), train=rare())
    assert ours < 0.85 * plain


def head_bias(net: nn.Module, *strategies: Strategy, **given: Any) -> torch.Tensor:
    """Of the last layer, once training begins."""
    bias: list[torch.Tensor] = []

    class Seeing:
        def begin(self, run: Run) -> None:
            bias.append(list(run.module.parameters())[-1].detach().clone())

    fit(
        model=net,
        valid=None,
        metric=None,
        strategies=[*strategies],
        callbacks=[Seeing()],
        **{"steps": 1, **given},
    )
    return bias[0]


def test_the_bias_is_the_log_of_the_frequencies() -> None:
    targets = torch.cat([y for _, y in rare()])
    counts = torch.bincount(targets, minlength=3) + 1.0
    bias = head_bias(model(), ClassPrior(), train=rare())
    assert bias.tolist() == pytest.approx((counts / counts.sum()).log().tolist())
    given = head_bias(model(), ClassPrior(frequencies=[7, 2, 1]))
    assert given.softmax(0).tolist() == pytest.approx([0.7, 0.2, 0.1])


def test_targets_of_zero_and_one_are_for_sigmoids() -> None:
    chance = torch.Generator().manual_seed(0)
    x = torch.randn(200, 8, generator=chance)
    y = (torch.rand(200, 3, generator=chance) < torch.tensor([0.5, 0.1, 0.02])).float()
    data = [(x[:100], y[:100]), (x[100:], y[100:])]
    loss = F.binary_cross_entropy_with_logits
    bias = head_bias(model(), ClassPrior(), train=data, loss=loss)
    assert bias.sigmoid().tolist() == pytest.approx(((y.sum(0) + 1) / 202).tolist())
    one = [(a, b[:, 2]) for a, b in data]
    net = nn.Sequential(nn.Linear(8, 1), nn.Flatten(0))
    assert float(head_bias(net, ClassPrior(), train=one, loss=loss).sigmoid()) == pytest.approx(
        float(y[:, 2].sum() + 1) / 202
    )


def test_class_prior_leaves_out_what_the_loss_ignores() -> None:
    ignored = [(x, torch.where(torch.arange(len(y)) % 3 == 0, 255, y)) for x, y in rare()]
    known = [(x, torch.where(y == 255, -100, y)) for x, y in ignored]
    bias = head_bias(
        model(), ClassPrior(), train=ignored, loss=nn.CrossEntropyLoss(ignore_index=255)
    )
    assert same(bias, head_bias(model(), ClassPrior(), train=known))


def test_class_prior_counts_classes_that_are_told_in_bytes() -> None:
    """Class 156 is none that is left out, though -100 is the same byte."""
    numbers = [(x, torch.where(y == 0, 156, y)) for x, y in rare()]
    as_bytes = [(x, y.byte()) for x, y in numbers]
    bias, wanted = (
        head_bias(nn.Linear(8, 157), ClassPrior(), train=each) for each in (as_bytes, numbers)
    )
    assert same(bias, wanted)


def test_a_loss_may_say_that_it_ignores_nothing() -> None:
    class Own:
        def __init__(self) -> None:
            self.ignore_index = None

        def __call__(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
            return F.cross_entropy(outputs, targets)

    bias = head_bias(model(), ClassPrior(), train=rare(), loss=Own())
    assert same(bias, head_bias(model(), ClassPrior(), train=rare()))


def test_cross_entropy_may_be_given_probabilities() -> None:
    hot = [(x, F.one_hot(y, 3).float()) for x, y in rare()]
    wanted = head_bias(model(), ClassPrior(), train=rare())
    for loss in (F.cross_entropy, nn.CrossEntropyLoss()):
        bias = head_bias(model(), ClassPrior(), train=hot, loss=loss)
        assert bias.tolist() == pytest.approx(wanted.tolist())
    soft = [(x, 0.7 * y + 0.1) for x, y in hot]
    counts = torch.cat([y for _, y in soft]).sum(0) + 1.0
    bias = head_bias(model(), ClassPrior(), train=soft)
    assert bias.softmax(0).tolist() == pytest.approx((counts / counts.sum()).tolist())


class Counting:
    """Batches of which it is known how many there are at once."""

    def __init__(self) -> None:
        self.alive = self.most = 0

    def __len__(self) -> int:
        return 100

    def __iter__(self) -> Iterator[Any]:
        for number in range(len(self)):
            x, y = points(24, number)
            self.alive += 1
            self.most = max(self.most, self.alive)
            weakref.finalize(x, self.gone)
            yield x, y

    def gone(self) -> None:
        self.alive -= 1


@pytest.mark.parametrize("strategy", [ClassPrior(), ClassWeights()])
def test_targets_are_counted_without_holding_all_inputs(strategy: Strategy) -> None:
    data = Counting()
    fit(train=data, strategies=[strategy, Constant()], steps=1, valid=None, metric=None)
    assert data.most < 6


@pytest.mark.parametrize("strategy", [ClassPrior(), ClassWeights()])
def test_counting_takes_no_more_than_its_part_of_a_budget(strategy: Strategy) -> None:
    time, begun = Time(), list[float]()

    class Begun:
        def begin(self, run: Run) -> None:
            begun.append(run.clock.read())

    fit(
        train=Slow(ready(100 * 24), time, 1.0),
        strategies=[strategy, Constant()],
        callbacks=[Begun()],
        budget=200.0,
        steps=1,
        now=time,
    )
    assert begun == [10.0]  # of 64 batches


class Wrapping(nn.Module):
    """A part of it is called as what DistributedDataParallel wraps."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.module = model(seed)
        self.head = nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.head(self.module(x))
        return found


@pytest.mark.parametrize("wrapper", ["", "module.", "_orig_mod.", "_orig_mod.module."])
@pytest.mark.parametrize("compiled", [False, True])
def test_names_of_wrappers_are_no_names(wrapper: str, compiled: bool) -> None:
    old, net = Wrapping(5).state_dict(), Wrapping(0)
    strategy = Transfer({f"{wrapper}{name}": weight for name, weight in old.items()})
    whole = torch.compile(net, backend="eager") if compiled else net
    fit(model=whole, strategies=[strategy, Constant(rate=0.0)], epochs=1)
    assert strategy.report is not None
    assert (strategy.report.missing, strategy.report.unused) == ((), ())
    assert torch.equal(net.module[0].weight, old["module.0.weight"])


@pytest.mark.parametrize("other", [Kaiming(), Transfer(model(seed=5).state_dict())])
def test_class_prior_comes_after_all_other_first_weights(other: Strategy) -> None:
    wanted = head_bias(model(), ClassPrior(), train=rare())
    for strategies in ([ClassPrior(), other], [other, ClassPrior()]):
        assert same(head_bias(model(), *strategies, train=rare()), wanted)


def focal(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Lin et al. 2017, equation 5, over the number of positives."""
    plain = F.binary_cross_entropy_with_logits(outputs, targets, reduction="none")
    right = torch.exp(-plain)
    weight = torch.where(targets == 1, 0.25, 0.75)
    return (weight * (1 - right) ** 2 * plain).sum() / targets.sum().clamp(min=1)


def test_focal_loss_begins_where_negatives_do_not_drown_the_few() -> None:
    chance = torch.Generator().manual_seed(0)
    x = torch.randn(200, 8, generator=chance)
    y = (torch.rand(200, 100, generator=chance) < 0.01).float()
    train = list(zip(x.split(20), y.split(20), strict=True))

    def net() -> nn.Module:
        torch.manual_seed(0)
        return nn.Linear(8, 100)

    ours = first_epoch(ClassPrior(pi=0.01), model=net(), train=train, loss=focal)
    plain = first_epoch(model=net(), train=train, loss=focal)
    assert ours < 0.3 * plain
    bias = head_bias(net(), ClassPrior(pi=0.01), train=train, loss=focal)
    assert bias.tolist() == pytest.approx([-math.log(0.99 / 0.01)] * 100)


def frozen_bias() -> nn.Module:
    layer = nn.Linear(8, 3)
    layer.bias.requires_grad_(False)
    return layer


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"model": nn.Linear(8, 3, bias=False)}, "has no bias"),
        ({"model": frozen_bias()}, "the bias of the last layer, the model, does not learn"),
        ({"model": nn.Sequential(nn.Flatten(), nn.PReLU())}, "calls no linear layer"),
        ({"model": nn.Linear(8, 2)}, "targets are no classes of the 2 outputs of the model"),
        ({"strategies": [ClassPrior(frequencies=[1, 2])]}, "2 frequencies for the 3 outputs of 3"),
    ],
)
def test_class_prior_tells_why_it_can_not(given: dict[str, Any], said: str) -> None:
    if "model" in given:
        given = {**given, "loss": lambda outputs, targets: outputs.sum()}
    with pytest.raises(UsageError, match=said):
        fit(**{"strategies": [ClassPrior()], "metric": None, **given})


# --- lsuv ------------------------------------------------------------------------------------


def deep(layers: int = 30) -> nn.Sequential:
    torch.manual_seed(0)
    body = [each for _ in range(layers) for each in (nn.Linear(32, 32), nn.Tanh())]
    return nn.Sequential(nn.Linear(8, 32), nn.Tanh(), *body, nn.Linear(32, 3))


def outputs(net: nn.Sequential, *strategies: Strategy) -> list[torch.Tensor]:
    """Of each linear layer when training begins, for a batch that was not looked at."""
    found: list[torch.Tensor] = []

    class Seeing:
        def begin(self, run: Run) -> None:
            x = points(500, seed=3)[0]
            with torch.no_grad():
                for layer in net:
                    x = layer(x)
                    if isinstance(layer, nn.Linear):
                        found.append(x)

    fit(model=net, strategies=[*strategies], callbacks=[Seeing()], steps=1, valid=None, metric=None)
    return found


def test_signals_live_through_thirty_layers() -> None:
    assert float(outputs(deep())[-1].var(0).mean()) < 1e-6
    ours = outputs(deep(), Lsuv())
    assert len(ours) == 32
    assert all(0.7 < float(output.var()) < 1.4 for output in ours)
    assert float(ours[-1].var(0).mean()) > 0.5


def test_signals_live_where_layers_compute_in_bfloat16() -> None:
    for output in outputs(deep(10), Bf16(), Lsuv()):
        assert 0.7 < float(output.var()) < 1.4


def test_a_deep_net_learns_from_the_first_epochs_on() -> None:
    costs = [
        fit(model=deep(), strategies=[*lsuv, OneCycle(rate=0.01)], epochs=15, metric=None).metric
        for lsuv in ([Lsuv()], [])
    ]
    ours, plain = (cost or math.inf for cost in costs)
    assert plain > 0.95 * math.log(3)
    assert ours < 0.7 * plain


def test_lsuv_scales_convolutions_and_leaves_what_is_frozen() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Unflatten(1, (1, 8)),
        nn.Conv1d(1, 6, 3),
        nn.Tanh(),
        nn.ConvTranspose1d(6, 4, 3),
        nn.Flatten(),
        nn.Linear(32, 3),
    )
    net[3].requires_grad_(False)
    frozen = copy.deepcopy(net[3].state_dict())
    after = After()
    result = fit(
        model=net, strategies=[Lsuv(), after], steps=1, optimizer=torch.optim.SGD(net.parameters())
    )
    assert "lsuv: the outputs of 2 layers begin with a variance of 1" in result.notes
    assert same(frozen, net[3].state_dict())
    weight = after.seen["parameters"]["1.weight"].flatten(1)
    gram = weight.T @ weight  # orthonormal columns, but for their scale
    assert torch.allclose(gram, gram[0, 0] * torch.eye(3), atol=1e-5)


def test_the_seed_decides_on_lsuv_too() -> None:
    weights = []
    for seed in (0, 0, 1):
        after = After()
        fit(strategies=[Lsuv(), after], steps=1, seed=seed)
        weights.append(after.seen["parameters"]["0.weight"])
    assert same(weights[0], weights[1])
    assert not same(weights[0], weights[2])


# --- transfer --------------------------------------------------------------------------------


def body(classes: int = 3, seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    layers = [each for _ in range(3) for each in (nn.Linear(8, 8), nn.Tanh())]
    return nn.Sequential(*layers, nn.Linear(8, classes))


def other_weights() -> dict[str, Any]:
    """Of a net that was trained on another number of classes, and has something more."""
    net = body(5, seed=9)
    x, y = points(480, seed=5)
    y = y + 2 * (x[:, 3] > 0.5).long()
    fit(model=net, train=list(zip(x.split(24), y.split(24), strict=True)), valid=None, metric=None,
        epochs=30)  # fmt: skip
    weights = {f"module.{name}": weight for name, weight in net.state_dict().items()}
    return {"model": {**weights, "module.extra": torch.ones(2)}}


def test_what_fits_is_loaded_and_what_does_not_is_told(tmp_path: Path) -> None:
    weights = other_weights()
    torch.save(weights, tmp_path / "weights.pt")
    net, after = body(), After()
    net.register_buffer("scale", torch.ones(1))
    strategy = Transfer(tmp_path / "weights.pt")
    result = fit(model=net, strategies=[strategy, after, OneCycle(rate=0.01)])
    assert strategy.report is not None
    assert strategy.report.loaded == (
        "0.weight", "0.bias", "2.weight", "2.bias", "4.weight", "4.bias",
    )  # fmt: skip
    assert strategy.report.other_shape == (
        "6.weight [5, 8] there, [3, 8] here",
        "6.bias [5] there, [3] here",
    )
    assert strategy.report.missing == ("scale",)
    assert strategy.report.unused == ("extra",)
    for name in strategy.report.loaded:
        assert same(after.seen["parameters"][name].data, weights["model"][f"module.{name}"])
    assert result.notes[0] == (
        "transfer: 6 of 9 tensors loaded; another shape: 6.weight [5, 8] there, [3, 8] here, "
        "6.bias [5] there, [3] here; only here: scale; only there: extra"
    )


class Moves:
    """Which layers each step moves, at which share of the budget, and at which rates."""

    def __init__(self) -> None:
        self.seen: list[tuple[float, list[str]]] = []
        self.rates: dict[str, float] = {}

    def begin(self, run: Run) -> None:
        self.before = copy.deepcopy(dict(run.module.named_parameters()))
        self.used = run.clock.used

    def step_end(self, run: Run) -> None:
        now = dict(run.module.named_parameters())
        moved = [n for n in now if n.endswith("weight") and not same(now[n], self.before[n])]
        self.seen.append((self.used, moved))
        self.begin(run)
        names = {id(parameter): name for name, parameter in now.items()}
        for group in run.optimizer.param_groups:
            self.rates.update({names[id(p)]: group["lr"] for p in group["params"]})


def test_parts_are_set_free_in_their_time_and_learn_slower_the_deeper_they_are() -> None:
    moves = Moves()
    net = body()
    weights = {n: w for n, w in body(seed=4).state_dict().items() if not n.startswith("6.")}
    fit(
        model=net,
        strategies=[Transfer(weights, unfreeze=0.6), Constant(rate=0.1)],
        callbacks=[moves],
        epochs=4,
    )
    layers = ["6.weight", "4.weight", "2.weight", "0.weight"]
    assert len(moves.seen) == 40
    for used, moved in moves.seen:
        free = [layer for i, layer in enumerate(layers) if used >= 0.6 * i / 3]
        assert sorted(moved) == sorted(free)
    rates = [moves.rates[layer] for layer in layers]
    assert rates == pytest.approx([0.1 / 2.6**i for i in range(4)])
    assert moves.rates["6.bias"] == moves.rates["6.weight"]
    assert all(parameter.requires_grad for parameter in net.parameters())


def test_several_ranks_drop_the_gradients_of_what_is_frozen() -> None:
    """DistributedDataParallel would wait for those of weights that want none."""
    moves = Moves()

    class AsOfTwo(Strategy):
        name = "as_of_two"

        def begin(self, run: Run) -> None:
            run.world = 2

    class Alone:
        def begin(self, run: Run) -> None:
            run.world = 1
            assert all(parameter.requires_grad for parameter in run.module.parameters())

    transfer = Transfer(body(seed=4).state_dict(), unfreeze=1.0, parts=2)
    fit(
        model=body(),
        strategies=[AsOfTwo(), transfer, Constant(rate=0.1)],
        callbacks=[Alone(), moves],
        epochs=2,
        valid=None,
        metric=None,
    )
    assert all("0.weight" not in moved and "6.weight" in moved for _, moved in moves.seen)


def test_few_samples_are_learnt_better_from_other_weights() -> None:
    x, y = points(48)
    few = list(zip(x.split(12), y.split(12), strict=True))
    weights = other_weights()
    metrics = []
    for transfer in ([Transfer(weights)], []):
        result = fit(
            model=body(), train=few, valid=ready(600, 100, seed=2), epochs=20,
            strategies=[*transfer, OneCycle(rate=0.03)],
        )  # fmt: skip
        metrics.append(result.history[-1].metric or 0.0)
    assert metrics[0] > metrics[1] + 0.03


@pytest.mark.parametrize(
    ("weights", "kind", "said"),
    [
        ({"other": torch.ones(1)}, UsageError, "nothing fits the model: 0 of 4 tensors loaded"),
        (model(), UsageError, "a Sequential is no state dict"),
        ("nowhere.pt", DataError, "nowhere.pt cannot be read"),
    ],
)
def test_transfer_tells_why_it_can_not(weights: Any, kind: type[Exception], said: str) -> None:
    with pytest.raises(kind, match=said):
        fit(strategies=[Transfer(weights)])
