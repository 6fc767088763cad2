"""A training after another: what the first was given is as it came, and strategies begin anew."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch.nn import functional as F
from torch.utils.data import TensorDataset

from outpace.errors import UsageError
from outpace.seams.batch import map_tensors
from outpace.serve.loader import Loader
from outpace.train.checkpoint import copied
from outpace.train.run import Run
from outpace.train.strategies import (
    STRATEGIES,
    BatchWarmup,
    ClassWeights,
    Constant,
    LossSampling,
    OneCycle,
    Plateau,
    Strategy,
    Subset,
    Transfer,
)
from outpace.train.strategies.base import Course
from tests.train.toys import deep, fit, made, model, points, same, suited, trainer


class Begun:
    """What a strategy holds as the first step begins."""

    def __init__(self, strategy: Strategy) -> None:
        self.strategy = strategy
        self.state: Any = None

    def begin(self, run: Run) -> None:
        self.state = map_tensors(copied(self.strategy.state_dict()), torch.nan_to_num)


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_strategy_begins_anew(name: str) -> None:
    used, fresh = made(name), made(name)

    def go(strategy: Strategy, epochs: int) -> Any:
        course = [] if isinstance(strategy, Course) else [Constant()]
        begun = Begun(strategy)
        strategies = [*course, strategy]
        result = fit(**suited(name), strategies=strategies, callbacks=[begun], epochs=epochs)
        return begun.state, dict(result.weights)

    go(used, 4)
    assert same(go(used, 3), go(fresh, 3))


def test_drops_are_counted_from_the_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "outpace.train.strategies.plateau.stalled",
        lambda costs, *_, **__: "as is told" if len(costs) >= 3 else None,
    )
    strategy = Plateau(rate=0.02, drops=1)
    for _ in range(2):
        result = fit(strategies=[strategy], epochs=6)
        assert sum(note.startswith("plateau") for note in result.notes) == 1


def settings(optimizer: torch.optim.Optimizer) -> Any:
    return [
        {name: value if name != "params" else [id(p) for p in value] for name, value in g.items()}
        for g in optimizer.param_groups
    ]


@pytest.mark.parametrize("at", [None, 7])
def test_an_optimizer_has_its_rates_and_groups_back(at: int | None) -> None:
    """Also where a training is interrupted."""
    net = deep()
    optimizer = torch.optim.AdamW(net.parameters(), 0.01, betas=(0.8, 0.99))
    before = copy.deepcopy(settings(optimizer))

    class Interrupted:
        def gradients(self, run: Run) -> None:
            if run.step == at:
                raise KeyboardInterrupt

    def go() -> Any:
        transfer = Transfer({"0.weight": torch.zeros(16, 8), "0.bias": torch.zeros(16)})
        return fit(
            model=net,
            optimizer=optimizer,
            strategies=[transfer, OneCycle()],
            callbacks=[Interrupted()],
        )

    if at is None:
        result = go()
        assert result.history[-1].rate == pytest.approx(0.0, abs=1e-6)
    else:
        with pytest.raises(KeyboardInterrupt):
            go()
    assert settings(optimizer) == before


def test_a_rate_in_a_tensor_is_back_too() -> None:
    net = model()
    optimizer = torch.optim.AdamW(net.parameters(), torch.tensor(0.01), foreach=False)
    fit(model=net, optimizer=optimizer, strategies=[OneCycle()])
    assert float(optimizer.param_groups[0]["lr"]) == pytest.approx(0.01)


@pytest.mark.parametrize("name", ["repeat_factor", "loss_sampling", "subset"])
@pytest.mark.parametrize("at", [None, 7])
def test_a_loader_has_its_order_back(name: str, at: int | None) -> None:
    loader = Loader(TensorDataset(*points()), 24, executor="none")
    order, inside = loader.order, []

    class Interrupted:
        def gradients(self, run: Run) -> None:
            inside.append(loader.order)
            if run.step == at:
                raise KeyboardInterrupt

    def go() -> Any:
        fit(train=loader, strategies=[made(name), Constant()], callbacks=[Interrupted()], epochs=3)

    if at is None:
        go()
    else:
        with pytest.raises(KeyboardInterrupt):
            go()
    assert inside[-1] is not order
    assert loader.order is order


def test_the_loss_of_a_training_is_not_that_of_the_next_question() -> None:
    asking = trainer(strategies=[ClassWeights(), Constant(rate=0.02)], steps=20)
    asking.fit(quiet=True)
    assert asking.objective.learning is F.cross_entropy


class Refuses(Strategy):
    """Fails once others have done their part."""

    name = "refuses"

    def __init__(self, where: str) -> None:
        self.where = where

    def at(self, place: str) -> None:
        if place == self.where:
            raise UsageError("not here")

    def prepare(self, run: Run) -> None:
        self.at("prepare")

    def first_weights(self, run: Run) -> None:
        self.at("first_weights")

    def first_batches(self, run: Run) -> None:
        self.at("first_batches")

    def begin(self, run: Run) -> None:
        self.at("begin")


@pytest.mark.parametrize("where", ["prepare", "first_weights", "first_batches", "begin"])
def test_what_fails_before_the_first_step_leaves_all_as_it_came(where: str) -> None:
    loader = Loader(TensorDataset(*points()), 24, executor="none")
    order = loader.order
    strategies = [BatchWarmup(), made("repeat_factor"), Refuses(where), Constant()]
    with pytest.raises(UsageError, match="not here"):
        fit(train=loader, strategies=strategies, epochs=4)
    assert (loader.batch_size, loader.order) == (24, order)


PLAIN: dict[str, Any] = {"valid": None, "metric": None, "batch_size": 24}


def test_what_begins_too_late_for_its_epochs_is_refused() -> None:
    with pytest.raises(UsageError, match="one is 100% of the training"):
        fit(**PLAIN, train=points(), strategies=[Subset(), Constant()], epochs=1)


def test_losses_of_several_batches_at_once_are_refused() -> None:
    with pytest.raises(UsageError, match="loss_sampling does not go with accumulation"):
        fit(**PLAIN, train=points(), strategies=["accumulation", LossSampling()])


def test_labels_that_are_no_classes_are_refused() -> None:
    tokens = torch.randint(2, 9, (48, 5))
    with pytest.raises(UsageError, match="labels are 48 x 5 numbers, and not 0 or 1"):
        fit(**PLAIN, train=(torch.randn(48, 8), tokens), strategies=["repeat_factor", Constant()])
