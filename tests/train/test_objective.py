"""Losses that keep something from batch to batch: what is tried on the way leaves them alone."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from outpace.errors import UsageError
from outpace.train import ranks
from outpace.train.objective import Judged, Objective
from outpace.train.run import Run
from outpace.train.strategies import Accumulation, BatchSize, Constant, LrFinder, OneCycle
from tests.train.toys import accuracy, deep, fit, model, partly_ignored, points, ready, trainer


class Centred(nn.Module):
    """Takes the mean of what it was given so far off the outputs, times a weight."""

    mean: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(3))
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.mean = self.mean.lerp(outputs.detach().mean(0), 0.5)
        return F.cross_entropy(self.scale * (outputs - self.mean), targets)


class First:
    """The loss as the first step finds it."""

    def __init__(self, loss: Centred) -> None:
        self.of, self.found = loss, list[Any]()

    def batch(self, run: Run, batch: Any) -> None:
        if not self.found:
            self.found = [self.of.mean.clone(), self.of.scale.grad]


def test_what_is_kept_comes_back_whatever_happens() -> None:
    loss = Centred()
    loss(*_given()).backward()
    mean, gradient = loss.mean.clone(), loss.scale.grad
    objective = Objective(loss)

    def interrupted() -> None:
        with objective.kept():
            assert loss.scale.grad is None
            loss(*_given()).backward()
            assert not torch.equal(loss.mean, mean)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert torch.equal(loss.mean, mean)
    assert loss.scale.grad is gradient


def _given() -> Any:
    x, y = points(24)
    return model()(x), y


def test_validation_teaches_a_loss_nothing() -> None:
    loss = Centred()
    Objective(loss).judge(model(), ready())
    assert torch.equal(loss.mean, torch.zeros(3))
    assert loss.training


@pytest.mark.parametrize(
    "strategies",
    [
        [LrFinder(), OneCycle()],
        [Accumulation(), OneCycle(rate=0.01)],
        [BatchSize(), OneCycle(rate=0.01)],
        "auto",
    ],
    ids=["lr_finder", "accumulation", "batch_size", "auto"],
)
def test_training_begins_with_the_loss_as_it_came(strategies: Any) -> None:
    loss = Centred()
    first, net = First(loss), deep()
    data: dict[str, Any] = {"train": points(), "valid": points(120, seed=1), "batch_size": 24}

    def both(parameters: Any) -> torch.optim.Optimizer:
        return torch.optim.AdamW([*parameters, loss.scale], 0.01)

    fit(
        model=net,
        loss=loss,
        metric=None,
        **data,
        epochs=200,
        optimizer=both,
        strategies=strategies,
        callbacks=[first, Until(3)],
    )
    mean, gradient = first.found
    assert torch.equal(mean, torch.zeros(3))
    assert gradient is None


class Until:
    """Ends a training at a step."""

    def __init__(self, step: int) -> None:
        self.step = step

    def step_end(self, run: Run) -> None:
        if run.step == self.step:
            run.stop("seen")


def test_weights_of_a_loss_that_no_optimizer_has_are_named() -> None:
    said = "weights of loss are not learnt, as no optimizer has them"
    loss, net = Centred(), model()
    result = fit(model=net, loss=loss, epochs=1)
    assert any(said in note for note in result.notes)
    optimizer = torch.optim.SGD([*net.parameters(), *loss.parameters()], 0.01)
    result = fit(model=net, loss=loss, epochs=1, optimizer=optimizer, strategies=[Constant()])
    assert not any(said in note for note in result.notes)


def test_trials_teach_a_loss_nothing() -> None:
    loss = Centred()

    def both(parameters: Any) -> torch.optim.Optimizer:
        return torch.optim.AdamW([*parameters, loss.scale], 0.01)

    asking = trainer(loss=loss, metric=None, epochs=40, optimizer=both)
    asking.compare({"one": [Constant(rate=0.01)], "other": [Constant(rate=0.3)]}, steps=20, seeds=2)
    asking.suggestions(seconds=0.1)
    assert float(loss.scale.detach()) == 1.0


@pytest.mark.parametrize("given", [{"f1": 0.5}, torch.ones(3), "many", None])
@pytest.mark.parametrize("gathers", [False, True])
def test_a_metric_that_is_no_number_is_told(given: Any, gathers: bool) -> None:
    class Gathering:
        def reset(self) -> None:
            pass

        def update(self, outputs: Any, targets: Any) -> None:
            pass

        def compute(self) -> Any:
            return given

    metric = Gathering() if gathers else lambda outputs, targets: given
    with pytest.raises(UsageError, match="one number is asked for"):
        fit(metric=metric, epochs=1)


def test_targets_may_be_a_dict() -> None:
    given = [(x, {"class": y, "size": x.norm(dim=1)}) for x, y in ready()]
    result = fit(
        loss={
            "class": lambda outputs, targets: F.cross_entropy(outputs, targets["class"]),
            "size": lambda outputs, targets: (outputs.logsumexp(1) - targets["size"]).abs().mean(),
        },
        metric=lambda outputs, targets: accuracy(outputs, targets["class"]),
        train=given,
        valid=given[:3],
        strategies=["one_cycle"],
        epochs=20,
    )
    assert (result.metric or 0.0) > 0.5


def test_a_loss_may_take_the_labels_out_of_a_batch() -> None:
    """As is done before what is left is given to a model by name: batches that are looked at come again."""

    def loss(model: Any, batch: Any) -> torch.Tensor:
        labels = batch.pop("labels")
        return F.cross_entropy(model(**batch), labels)

    def metric(model: Any, batch: Any) -> torch.Tensor:
        found = model(batch["input"]).argmax(1)
        return (found == batch["labels"]).float().mean()

    given = [{"input": x, "labels": y} for x, y in ready()]
    result = fit(
        loss=loss,
        metric=metric,
        train=given,
        valid=given[:3],
        strategies=["lr_finder", "one_cycle"],
        epochs=20,
    )
    assert not any("no rate can be tried" in note for note in result.notes)
    assert result.history[-1].metric is not None
    assert result.history[-1].metric > 0.6
    assert all(set(batch) == {"input", "labels"} for batch in given)


# --- batches without a loss ------------------------------------------------------------------


def test_batches_whose_targets_are_all_ignored_do_not_void_a_validation() -> None:
    net, batches = model(), ready(120)
    objective = Objective(nn.functional.cross_entropy)
    silent = partly_ignored(batches)
    found = objective.judge(net, silent)
    assert found.loss == objective.judge(net, [b for i, b in enumerate(batches) if i != 2]).loss
    assert (found.samples, found.untold) == (120, 24)
    assert math.isnan(objective.judge(net, silent[2:3]).loss)


def test_weights_that_are_no_numbers_void_it() -> None:
    net = nn.Embedding(2, 3)
    objective = Objective(nn.functional.cross_entropy)
    batches = [(torch.full((4,), row), torch.zeros(4, dtype=torch.long)) for row in (0, 1)]
    assert math.isfinite(objective.judge(net, batches).loss)
    with torch.no_grad():
        net.weight[1] = math.nan  # of which the first batch knows nothing
    assert math.isnan(objective.judge(net, batches).loss)


def test_ranks_count_what_told_a_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    other = [2.0 * 30, 0.5 * 40, 30.0, 40.0, 40.0]
    monkeypatch.setattr(
        ranks, "summed", lambda own, _: [a + b for a, b in zip(own, other, strict=True)]
    )
    cpu = torch.device("cpu")
    all_told = Judged(70 / 40, 40 / 60, 60, 20, 60)
    assert ranks.judged(Judged(1.0, 1.0, 20, 10, 20), 2, cpu) == all_told
    without_loss = Judged(2.0, 40 / 60, 60, 30, 60)
    assert ranks.judged(Judged(math.nan, 1.0, 20, 20, 20), 2, cpu) == without_loss
    assert math.isnan(ranks.judged(Judged(math.nan, 1.0, 20, 0, 20), 2, cpu).loss)
    unmeasured = ranks.judged(Judged(1.0, math.nan, 20, 10, 0), 2, cpu)
    assert (unmeasured.metric, unmeasured.measured) == (0.5, 40)


def equation(model: torch.nn.Module, batch: Any) -> torch.Tensor:
    """Of a network and its slope."""
    x = batch[0].detach().clone().requires_grad_()
    (slope,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
    return (slope - 1.0).square().mean()


@pytest.mark.parametrize("strategies", ["auto", ["one_cycle", "lr_finder"]])
def test_a_loss_that_differentiates_is_validated_too(strategies: Any) -> None:
    x, y = points()
    result = fit(loss=equation, metric=None, train=(x, y), valid=(x, y), strategies=strategies,
                 batch_size=24, epochs=3)  # fmt: skip
    assert result.metric is not None
    assert math.isfinite(result.metric)
    assert not any("require grad" in note for note in result.notes)


def test_outputs_that_a_metric_is_given_have_no_gradient() -> None:
    def loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        weight = torch.ones((), requires_grad=True)
        made = (outputs * weight).square().mean()
        (slope,) = torch.autograd.grad(made, outputs, create_graph=True)
        return made + slope.square().mean()

    def off(outputs: torch.Tensor, targets: torch.Tensor) -> float:
        return float(outputs.numpy().mean())

    assert math.isfinite(fit(loss=loss, metric=off, larger_is_better=True, epochs=2).metric or 0.0)
