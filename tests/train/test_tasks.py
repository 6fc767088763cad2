"""Several tasks: their losses together, and task_curriculum."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset

from outpace.errors import UsageError
from outpace.measure.generators import random_states
from outpace.serve.loader import Loader
from outpace.train.run import Run
from outpace.train.strategies import Constant, TaskCurriculum
from tests.train.toys import Slow, Time, fit, goes_on_exactly, ready, same, size_loss

BOTH = {"class": F.cross_entropy, "size": size_loss}


def test_the_loss_of_several_tasks_is_their_sum() -> None:
    def together(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(outputs, targets) + size_loss(outputs, targets)

    ours, wanted = fit(loss=BOTH), fit(loss=together)
    assert same(dict(ours.weights), dict(wanted.weights))
    assert [row.valid_loss for row in ours.history] == [row.valid_loss for row in wanted.history]


def test_tasks_may_take_the_model() -> None:
    def by_batch(model: nn.Module, batch: Any) -> torch.Tensor:
        return F.cross_entropy(model(batch[0]), batch[1])

    def size(model: nn.Module, batch: Any) -> torch.Tensor:
        return size_loss(model(batch[0]), batch[1])

    given = {"metric": None, "epochs": 2}
    ours = fit(loss={"class": by_batch, "size": size}, **given).metric
    assert ours == pytest.approx(fit(loss=BOTH, **given).metric)
    with pytest.raises(UsageError, match="some of the losses class, size take a model"):
        fit(loss={"class": by_batch, "size": size_loss}, **given)
    with pytest.raises(UsageError, match="size is 3"):
        fit(loss={"class": by_batch, "size": 3}, **given)


@pytest.mark.parametrize("strategies", [[], [TaskCurriculum(order=["class", "size"])]])
def test_a_task_may_take_what_it_needs_out_of_a_batch(strategies: list[Any]) -> None:
    def by_class(model: nn.Module, batch: Any) -> torch.Tensor:
        return F.cross_entropy(model(batch.pop("x")), batch.pop("y"))

    def size(model: nn.Module, batch: Any) -> torch.Tensor:
        return size_loss(model(batch.pop("x")), batch.pop("y"))

    dicts = [{"x": x, "y": y} for x, y in ready()]
    given = {"metric": None, "train": dicts, "valid": dicts, "epochs": 2}
    result = fit(loss={"class": by_class, "size": size}, strategies=strategies, **given)
    assert result.history[-1].valid_loss is not None


# --- task_curriculum -------------------------------------------------------------------------


class Heads(nn.Module):
    """Two tasks that share a layer: [N, 8] -> [N, 3] and [N, 1] side by side."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.shared, self.easy, self.hard = nn.Linear(8, 16), nn.Linear(16, 3), nn.Linear(16, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inside = torch.relu(self.shared(x))
        return torch.cat([self.easy(inside), self.hard(inside)], 1)


def easy(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(outputs[:, :3], targets)


def hard(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Noise is all there is to learn."""
    return F.mse_loss(outputs[:, 3], torch.cos(1e4 * outputs[:, 3].detach() + targets))


class Moved:
    """Steps at which the gradients of the hard task's own weights are not zero."""

    def __init__(self) -> None:
        self.easy: list[int] = []
        self.hard: list[int] = []

    def gradients(self, run: Run) -> None:
        assert isinstance(run.module, Heads)
        for steps, layer in ((self.easy, run.module.easy), (self.hard, run.module.hard)):
            if layer.weight.grad is not None and bool(layer.weight.grad.any()):
                steps.append(run.step)


def curriculum(strategy: TaskCurriculum, **given: Any) -> tuple[Any, Moved]:
    moved = Moved()
    result = fit(
        **{
            "model": Heads(),
            "loss": {"hard": hard, "easy": easy},
            "metric": None,
            "strategies": [strategy, Constant(rate=0.02)],
            "callbacks": [moved],
            "epochs": 20,
            **given,
        }
    )
    return result, moved


def test_the_easiest_is_found_and_the_other_joins_it() -> None:
    strategy = TaskCurriculum(until=0.4)
    result, moved = curriculum(strategy)
    assert strategy.order == ["easy", "hard"]
    assert moved.easy == list(range(200))
    assert moved.hard == list(range(80, 200))
    assert any("first easy, then hard; gone of the loss in 10 steps" in n for n in result.notes)


def test_the_easiest_is_found_where_losses_are_below_zero() -> None:
    """As a log-likelihood of what is continuous may be."""
    losses = {"hard": lambda o, t: hard(o, t) - 10.0, "easy": lambda o, t: easy(o, t) - 10.0}
    strategy = TaskCurriculum()
    curriculum(strategy, loss=losses)
    assert strategy.order == ["easy", "hard"]


def test_batches_that_take_long_are_not_waited_for() -> None:
    time = Time()
    train = Slow(ready(100 * 24), time, 1.0)
    result, _ = curriculum(
        TaskCurriculum(), train=train, valid=None, epochs=None, budget=40.0, now=time
    )
    assert "task_curriculum: trials take too long: first hard, then easy" in result.notes
    assert result.steps > 30


def test_the_order_may_be_given() -> None:
    _, moved = curriculum(TaskCurriculum(until=0.4, order=["hard", "easy"]))
    assert moved.hard == list(range(200))
    assert moved.easy == list(range(80, 200))


def test_trials_leave_all_as_it_was() -> None:
    class Looked:
        def begin(self, run: Run) -> None:
            state = run.state_dict()
            self.state = copy.deepcopy({k: v for k, v in state.items() if k != "strategies"})
            self.random = random_states()
            self.rates = [group["lr"] for group in run.optimizer.param_groups]

    seen = []
    for order in (None, ["easy", "hard"]):
        looked = Looked()
        curriculum(TaskCurriculum(order=order), callbacks=[looked])
        looked.state.pop("clock")
        looked.state.pop("notes")
        seen.append((looked.state, looked.random, looked.rates))
    assert same(*seen)


def test_the_loss_that_is_told_is_of_all_tasks() -> None:
    """A task that joins is no jump."""
    given = {"valid": None, "epochs": 1}
    plain = fit(
        model=Heads(),
        loss={"hard": hard, "easy": easy},
        metric=None,
        strategies=[Constant(rate=0.0)],
        **given,
    )
    result, _ = curriculum(
        TaskCurriculum(order=["easy", "hard"]),
        strategies=[TaskCurriculum(order=["easy", "hard"]), Constant(rate=0.0)],
        **given,
    )
    assert result.history[0].train_loss == pytest.approx(plain.history[0].train_loss)


class Parity(nn.Module):
    """Tells four signs of its inputs, and whether they are even: [N, 30] -> [N, 5]."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.shared = nn.Sequential(nn.Linear(30, 16), nn.Tanh())
        self.signs = nn.Linear(16, 4)
        self.parity = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inside = self.shared(x)
        return torch.cat([self.signs(inside), self.parity(inside)], 1)


def signs(count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    chance, fixed = torch.Generator().manual_seed(seed), torch.Generator().manual_seed(5)
    directions = torch.randn(30, 4, generator=fixed)
    x = torch.randn(count, 30, generator=chance)
    found = (x @ directions > 0).float()
    return x, torch.cat([found, found.sum(1, keepdim=True) % 2], 1)


def the_worse(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Accuracy of the task that is told worse."""
    right = ((outputs > 0) == (targets > 0.5)).float().mean(0)
    return torch.minimum(right[:4].mean(), right[4])


def test_both_targets_are_reached_in_fewer_steps_than_together() -> None:
    """Before the signs are there, the gradients of their parity are noise, and large."""
    loss = {
        "parity": lambda o, t: 30 * F.binary_cross_entropy_with_logits(o[:, 4], t[:, 4]),
        "signs": lambda o, t: F.binary_cross_entropy_with_logits(o[:, :4], t[:, :4]),
    }
    steps = []
    for strategies in ([TaskCurriculum()], []):
        result = fit(
            model=Parity(),
            train=Loader(TensorDataset(*signs(8000, 0)), 20, executor="none"),
            valid=[signs(1000, 1)],
            loss=loss,
            metric=the_worse,
            target=0.85,
            validate_every=50,
            steps=1500,
            optimizer=torch.optim.AdamW,
            strategies=[Constant(rate=0.01), *strategies],
        )
        assert result.stopped == "target" or not strategies
        steps.append(result.steps)
    assert steps[0] < 0.7 * steps[1]


@pytest.mark.parametrize(
    "at",
    [pytest.param(1, marks=pytest.mark.slow), 45, pytest.param(79, marks=pytest.mark.slow), 81],
)
def test_it_goes_on(tmp_path: Path, at: int) -> None:
    def go(folder: Path, **given: Any) -> Any:
        return curriculum(TaskCurriculum(until=0.4), checkpoint=folder, every=0, **given)[0]

    whole = go(tmp_path / "whole")
    assert goes_on_exactly(go, tmp_path / "cut", at, whole).notes == whole.notes


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"strategies": ["task_curriculum"]}, "orders tasks, and loss= is one"),
        (
            {"strategies": [TaskCurriculum(order=["class"])], "loss": BOTH},
            "the losses are class, size",
        ),
        (
            {"strategies": ["task_curriculum", "loss_sampling"], "loss": BOTH},
            "both set the loss",
        ),
    ],
)
def test_it_tells_why_it_can_not(given: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        fit(**given)
