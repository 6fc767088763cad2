"""lr_finder: it leaves all as it was, and its rate trains well."""

from __future__ import annotations

import copy
import math
import random
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from outpace.errors import UsageError
from outpace.measure.generators import random_states
from outpace.serve.loader import Loader
from outpace.train import climb, data
from outpace.train.judged_first import LOOKED_AT
from outpace.train.rate import careful
from outpace.train.run import Run
from outpace.train.strategies import Accumulation, Constant, LrFinder, OneCycle, lr_finder
from tests.train.toys import (
    CLASSES,
    Slow,
    Time,
    fit,
    model,
    partly_ignored,
    points,
    ready,
    same,
)


class Around:
    """Notes all there is before and after the finder; stands around it as two strategies do."""

    def __init__(self) -> None:
        self.states: list[Any] = []

    def begin(self, run: Run) -> None:
        states = {
            "model": dict(run.module.state_dict()),
            "optimizer": run.optimizer.state_dict()["state"],
            "random": random_states(),
            "data": run.train.state_dict(),
            "training": [m.training for m in run.module.modules()],
            "gradients": [p.grad is None for p in run.module.parameters()],
        }
        self.states.append(copy.deepcopy(states))


@pytest.mark.parametrize("way", ["batches", "Loader", "DataLoader"])
def test_it_leaves_all_as_it_was(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    data = TensorDataset(*points())
    train = {
        "batches": ready(),
        "Loader": Loader(data, 24, executor="none"),
        "DataLoader": DataLoader(data, 24, shuffle=True),
    }[way]
    around = Around()
    looks = LrFinder.begin

    def begin(self: LrFinder, run: Run) -> None:
        around.begin(run)
        looks(self, run)
        around.begin(run)

    monkeypatch.setattr(LrFinder, "begin", begin)
    torch.manual_seed(1)
    random.seed(1)
    np.random.seed(1)
    finder = LrFinder()
    result = fit(
        model=model(dropout=0.2, norm=True), train=train, epochs=60, strategies=[finder, Constant()]
    )
    assert finder.found is not None
    assert same(*around.states)
    monkeypatch.undo()

    # And the training is what it would be, had the rate been known.
    rate = finder.found.rate
    known = fit(
        model=model(dropout=0.2, norm=True),
        train=train if way == "batches" else type(train)(data, 24, shuffle=True),
        epochs=60,
        strategies=[Constant(rate=rate)],
    )
    assert same(dict(known.weights), dict(result.weights))


def classes() -> dict[str, Any]:
    """Ten dimensions, four classes, a good part of noise; it takes some epochs."""
    chance = torch.Generator().manual_seed(1)
    x = torch.randn(2400, 16, generator=chance)
    y = torch.stack([x[:, i] * x[:, i + 4] + x[:, i + 8] for i in range(4)], 1).argmax(1)
    torch.manual_seed(0)
    return {
        "model": nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4)),
        "metric": None,
        "train": list(zip(x[:1800].split(30), y[:1800].split(30), strict=True)),
        "valid": [(x[1800:], y[1800:])],
        "epochs": 20,
    }


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["adamw", "sgd"])
def test_its_rate_is_near_the_best_of_a_grid(kind: str) -> None:
    def go(*strategies: Any) -> float:
        given = classes()
        sgd = torch.optim.SGD(given["model"].parameters(), 0.05, momentum=0.9)
        optimizer = sgd if kind == "sgd" else None
        result = fit(**given, optimizer=optimizer, strategies=[*strategies])
        return result.history[-1].valid_loss or math.inf

    grid = {rate: go(OneCycle(rate=rate)) for rate in (10 ** (i / 2) for i in range(-8, 1))}
    finder = LrFinder()
    cost = go(finder, OneCycle())
    assert finder.found is not None
    best = min(grid, key=lambda rate: grid[rate] if math.isfinite(grid[rate]) else math.inf)
    assert 1 / 3 <= finder.found.rate / best <= 3
    assert cost < 1.2 * grid[best]
    assert finder.found.low <= finder.found.rate <= finder.found.high


def test_it_holds_few_batches_where_they_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at, peek = list[int](), data.Batches.peek

    def noted(batches: data.Batches, *given: Any) -> list[Any]:
        found = peek(batches, *given)
        looked_at.append(len(found))
        return found

    monkeypatch.setattr(data, "HELD_BYTES", 1)
    monkeypatch.setattr(data.Batches, "peek", noted)
    finder = LrFinder()
    fit(strategies=[finder, OneCycle()], epochs=60)
    assert finder.found is not None
    assert looked_at == [LOOKED_AT, data.FEWEST_HELD]
    with pytest.raises(UsageError, match="steps=5"):
        LrFinder(steps=5)


def test_groups_stay_in_proportion() -> None:
    net = model()
    groups = [{"params": net[0].parameters(), "lr": 0.01}, {"params": net[-1].parameters()}]
    optimizer = torch.optim.SGD(groups, 0.1)
    shares: list[float] = []

    class Shares:
        def end(self, run: Run) -> None:
            one, two = (group["lr"] for group in run.optimizer.param_groups)
            shares.append(one / two)

    finder = LrFinder()
    fit(
        model=net,
        optimizer=optimizer,
        strategies=[finder, Constant()],
        epochs=60,
        callbacks=[Shares()],
    )
    assert finder.found is not None
    assert shares == [pytest.approx(0.1)]


def test_a_training_that_is_too_short_keeps_its_rate() -> None:
    result = fit(strategies=["lr_finder", "one_cycle"], epochs=2)
    assert any("20 steps are too few to try rates: the rate stays 0.001" in n for n in result.notes)


def test_batches_that_take_long_are_not_waited_for() -> None:
    time = Time()
    result = fit(
        train=Slow(ready(100 * 24), time, 1.0),
        valid=None,
        strategies=["lr_finder", "one_cycle"],
        budget=20.0,
        now=time,
    )
    assert "3 batches in 14% of the time are too few to try rates" in "".join(result.notes)
    assert result.steps > 10


def test_a_model_that_cannot_be_copied_keeps_its_rate() -> None:
    class Uncopied(nn.Linear):
        def __deepcopy__(self, memo: Any) -> Any:
            raise RuntimeError("not this one")

    result = fit(model=Uncopied(8, 3), strategies=["lr_finder"], epochs=60)
    assert any("no rate can be tried on a copy (not this one)" in note for note in result.notes)


class Lion(torch.optim.SGD):
    """Keeps things of its own, as many an optimizer does that is not torch's."""

    def __init__(self, params: Any, lr: float) -> None:
        super().__init__(params, lr)
        self.sign, self.seen = (
            torch.sign,
            [p for group in self.param_groups for p in group["params"]],
        )

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for p in self.seen:
            p.data.sub_(self.param_groups[0]["lr"] * self.sign(p.grad))


def test_an_optimizer_with_things_of_its_own_is_tried_on_a_copy() -> None:
    net = model()
    result = fit(model=net, optimizer=lambda p: Lion(p, 1e-5), strategies=["lr_finder"], epochs=60)
    assert any("trainings of" in note and "by" in note for note in result.notes), result.notes


def test_a_loss_that_fails_where_it_is_tried_keeps_the_rate() -> None:
    """As models do that give losses in training and something else in evaluation."""

    def loss(model: nn.Module, batch: Any) -> torch.Tensor:
        found: Any = F.cross_entropy(model(batch[0]), batch[1])
        return found if model.training else found.losses  # type: ignore[no-any-return]

    result = fit(loss=loss, metric=None, valid=None, strategies=["lr_finder"], epochs=60, steps=400)
    assert any("no rate can be tried on a copy" in note for note in result.notes), result.notes


def test_a_model_that_learns_nothing_keeps_its_rate() -> None:
    class Deaf(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return 0.0 * super().forward(x)

    result = fit(model=Deaf(8, 3), strategies=["lr_finder"], epochs=60)
    assert any(
        "no rate lowers the loss in" in note and "stays 0.001" in note for note in result.notes
    )


@pytest.mark.parametrize("limit", [{"budget": 400.0}, {"steps": 400}])
def test_a_loss_that_differentiates_inside_keeps_the_rate(limit: dict[str, Any]) -> None:
    """As those of equations do: nothing can be judged where no gradients are kept."""
    time = Time()

    def loss(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
        time.s += 1.0
        x = x.clone().requires_grad_()
        found = model(x)
        (slope,) = torch.autograd.grad(found.sum(), x, create_graph=True)
        return (slope.sum(1, keepdim=True) + found).square().mean()

    result = fit(
        model=nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1)),
        loss=loss,
        metric=None,
        train=[x for x, _ in ready()],
        valid=None,
        strategies=["lr_finder", "one_cycle"],
        now=time,
        **limit,
    )
    assert result.steps > 300
    assert any(
        "no rate can be tried on a copy (" in note and "stays 0.001" in note
        for note in result.notes
    )


def test_the_first_step_is_of_its_own_gradients_alone() -> None:
    """Also where a loss reaches the weights by itself, whose gradients every copy's loss then has."""

    def first(*strategies: Any) -> torch.Tensor:
        net = model()
        seen: list[torch.Tensor] = []

        def loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
            penalty = sum(weight.square().sum() for weight in net.parameters())
            return nn.functional.cross_entropy(outputs, targets) + 0.01 * penalty

        class First:
            def gradients(self, run: Run) -> None:
                assert net[0].weight.grad is not None
                seen.append(net[0].weight.grad.clone())
                run.stop("seen")

        fit(model=net, loss=loss, epochs=60, strategies=[*strategies], callbacks=[First()])
        return seen[0]

    assert torch.equal(first(Constant(rate=0.02)), first(LrFinder(), Constant()))


def test_targets_that_are_all_ignored_in_some_batches_cost_no_rate() -> None:
    finder = LrFinder()
    result = fit(train=partly_ignored(ready(), every=3), strategies=[finder, OneCycle()], epochs=60)
    assert finder.found is not None, result.notes


@pytest.mark.parametrize(
    ("total", "trainings"), [(250, 3), (1000, 6), pytest.param(4000, 9, marks=pytest.mark.slow)]
)
def test_short_trainings_take_no_more_than_their_share_of_the_steps(
    total: int, trainings: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(climb, "wanted", lambda tried, before: -len(tried))
    finder = LrFinder()
    fit(strategies=[finder, OneCycle()], steps=total)
    assert finder.made is not None
    assert len(finder.made.points) == trainings
    assert lr_finder.cost(finder.made.steps, trainings) <= lr_finder.SHARE * total + 2


def test_batches_that_are_accumulated_are_steps_of_a_short_training() -> None:
    """125 steps of eight batches each are as good as a thousand."""
    finder = LrFinder()
    result = fit(strategies=[finder, OneCycle(), Accumulation(8)], steps=125)
    assert finder.found is not None, result.notes
    assert finder.made is not None
    assert finder.made.steps == lr_finder.STEPS


@pytest.mark.parametrize(("given", "steps"), [(None, lr_finder.FEWEST_STEPS), (12, 12)])
def test_a_training_to_a_target_is_kept_waiting_for_half_as_long(
    given: int | None, steps: int
) -> None:
    finder = LrFinder(steps=given)
    fit(strategies=[finder, OneCycle()], steps=1000, target=2.0)
    assert finder.made is not None
    assert finder.made.steps == steps
    fit(strategies=[finder, OneCycle()], steps=1000)
    assert finder.made is not None
    assert finder.made.steps == (given or lr_finder.STEPS)


def unlearning() -> list[Any]:
    """What is learnt from is wrong, and what is judged by is not: whatever the rate, the loss rises."""
    wrong = [(x, (y + 1) % CLASSES) for x, y in ready(16 * 24, seed=2)]
    return [*wrong, *ready()]


def test_where_all_rates_do_harm_a_smaller_one_is_taken_than_any() -> None:
    class Peak:
        def begin(self, run: Run) -> None:
            peaks.append(run.rates.peak)

    net, finder, peaks = model(), LrFinder(), list[float]()
    fit(model=net, epochs=20)
    result = fit(
        model=net,
        train=unlearning(),
        strategies=[finder, OneCycle()],
        steps=1000,
        callbacks=[Peak()],
    )
    assert finder.found is None
    assert finder.made is not None
    assert peaks == [careful(finder.made, 1000)]
    assert peaks[0] < 0.5 * finder.made.points[0].rate
    assert any("below all that were tried" in note for note in result.notes)


def test_a_rate_that_is_smaller_anyway_stays_where_all_that_were_tried_do_harm() -> None:
    net = model()
    fit(model=net, epochs=20)
    result = fit(
        model=net,
        train=unlearning(),
        optimizer=torch.optim.SGD(net.parameters(), 1e-9),
        strategies=[LrFinder(), OneCycle()],
        steps=1000,
    )
    assert any("the rate stays 1e-09" in note for note in result.notes), result.notes


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.up = nn.LayerNorm(width), nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(F.gelu(self.up(self.norm(x))))


def task(mix: float, count: int, seed: int) -> list[Any]:
    """Batches of four classes by a rule, of which that share is another one's."""
    rules = []
    for number in (1, 2):
        chance = torch.Generator().manual_seed(number)
        into, out = (torch.randn(*each, generator=chance) for each in ((16, 24), (24, 4)))
        rules.append((into / 4.0, out))
    x = torch.randn(count, 16, generator=torch.Generator().manual_seed(seed))
    one, two = (torch.tanh(2.0 * x @ into) @ out for into, out in rules)
    y = ((1.0 - mix) * one + mix * two).argmax(1)
    return list(zip(x.split(32), y.split(32), strict=True))


def test_a_model_that_was_trained_before_is_given_a_rate_that_suits_it() -> None:
    """Within 3x of the best of a grid, as trainings of 500 steps end."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(16, 32), Block(32), nn.LayerNorm(32), nn.Linear(32, 4))

    def ended(mix: float, seed: int, steps: int, *strategies: Any) -> float:
        data = {"train": task(mix, 1500, seed), "valid": task(mix, 800, 4)}
        given = {"model": net, "metric": None, "validate_every": steps}
        result = fit(**data, **given, steps=steps, strategies=[*strategies])
        return result.history[-1].valid_loss or math.inf

    ended(0.0, 1, 800, OneCycle(rate=5e-3))
    before = copy.deepcopy(net.state_dict())

    def tuned(*strategies: Any) -> float:
        net.load_state_dict(before)
        return ended(0.3, 3, 500, *strategies)

    grid = {rate: tuned(OneCycle(rate=rate)) for rate in (10 ** (i / 2) for i in range(-8, -3))}
    finder = LrFinder()
    cost = tuned(finder, OneCycle())
    assert finder.found is not None
    best = min(grid, key=lambda rate: grid[rate])
    assert 1 / 3 <= finder.found.rate / best <= 3
    assert cost < 1.02 * grid[best]
    assert finder.found.low <= best <= finder.found.high
