"""A training under way: what changes in it, how it is left, and what it goes on with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from outpace.errors import UsageError
from outpace.train.run import Run
from outpace.train.strategies import Constant
from tests.train.toys import CLASSES, accuracy, fit, model, points, ready, same, trainer


class Frozen(nn.Module):
    """A body that is frozen at first, and a head."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body, self.head = nn.Linear(8, 16), nn.Linear(16, CLASSES)
        self.body.requires_grad_(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.head(self.body(x).tanh())
        return out


def unfreeze(run: Run) -> None:
    if run.epoch == 2:
        run.module.body.requires_grad_(True)


def sgd(weights: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(weights, 0.1, momentum=0.9)


@pytest.mark.parametrize("optimizer", [None, sgd])
def test_what_a_callback_unfreezes_is_learnt_from_there_on(optimizer: Any) -> None:
    net = Frozen()
    first = net.body.weight.clone()
    result = fit(
        model=net, optimizer=optimizer, strategies=[Constant()], callbacks=[unfreeze], epochs=4
    )
    assert not torch.equal(net.body.weight, first)
    assert any("learnt from step 20 on" in note for note in result.notes)


def test_a_resume_knows_what_was_unfrozen(tmp_path: Path) -> None:
    def go(**given: Any) -> Any:
        return fit(
            model=Frozen(),
            optimizer=sgd,
            callbacks=[unfreeze],
            **{"strategies": [Constant()], **given},
        )

    whole = go(epochs=4)
    go(epochs=3, checkpoint=tmp_path)
    assert same(dict(go(epochs=4, checkpoint=tmp_path).weights), dict(whole.weights))


class Interrupt:
    def __init__(self, at: int, error: type[BaseException]) -> None:
        self.at, self.error = at, error

    def step_end(self, run: Run) -> None:
        if run.step == self.at:
            with torch.no_grad():
                run.module[0].weight.zero_()
            raise self.error


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_who_interrupts_it_has_the_best_weights(
    error: type[BaseException], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    net = model()
    given: dict[str, Any] = {"strategies": [Constant()], "checkpoint": tmp_path}
    made = trainer(model=net, callbacks=[Interrupt(25, error)], **given)
    with pytest.raises(error):
        made.fit()
    whole = fit(model=(other := model()), epochs=2, strategies=[Constant()])
    assert whole.best is not None
    assert same(net.state_dict(), other.state_dict()), "of step 10 or 20, not of step 25"
    best = torch.load(tmp_path / "best.pt", weights_only=True)
    assert same(dict(best), dict(whole.weights))
    if error is KeyboardInterrupt:
        assert f"best weights, of step {whole.best.step}" in capsys.readouterr().err


class Dries:
    """Batches that there are for one epoch alone."""

    def __init__(self) -> None:
        self.epochs = 0

    def __iter__(self) -> Iterator[Any]:
        self.epochs += 1
        return iter(ready() if self.epochs == 1 else [])


def test_data_that_are_over_end_it_with_what_was_learnt() -> None:
    result = fit(train=Dries(), strategies=[Constant()], steps=100)
    assert (result.stopped, result.steps) == ("data", 10)
    assert result.best is not None
    assert any("once only" in note for note in result.notes)


def test_no_data_at_all_are_a_mistake() -> None:
    class Empty:
        def __iter__(self) -> Iterator[Any]:
            return iter([])

    with pytest.raises(UsageError, match="nothing to learn from"):
        fit(train=Empty(), strategies=[Constant()], steps=10)


def rate_of(run: Run) -> float:
    return float(run.optimizer.param_groups[0]["lr"])


def test_a_resume_takes_up_the_rate_and_the_decay_that_are_given_now(tmp_path: Path) -> None:
    def go(epochs: int, rate: float, decay: float) -> tuple[Any, list[tuple[float, float]]]:
        seen = list[tuple[float, float]]()
        net = model()
        optimizer = torch.optim.SGD(net.parameters(), rate, weight_decay=decay)

        def note(run: Run) -> None:
            group = run.optimizer.param_groups[0]
            seen.append((float(group["lr"]), float(group["weight_decay"])))

        result = fit(
            model=net,
            optimizer=optimizer,
            strategies=[Constant()],
            epochs=epochs,
            checkpoint=tmp_path,
            callbacks=[note],
        )
        return result, seen

    assert set(go(2, 0.1, 0.0)[1]) == {(0.1, 0.0)}
    result, seen = go(4, 0.02, 0.5)
    assert set(seen) == {(0.02, 0.5)}
    assert any("lr=0.02" in note and "weight_decay=0.5" in note for note in result.notes)
    result, seen = go(5, 0.02, 0.5)
    assert set(seen) == {(0.02, 0.5)}


def test_the_best_by_another_metric_does_not_count(tmp_path: Path) -> None:
    def share_of_zeros(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return 0.01 * (outputs.argmax(1) == 0).float().mean()

    given: dict[str, Any] = {"strategies": [Constant()], "checkpoint": tmp_path}
    before = fit(metric=accuracy, epochs=2, **given)
    after = fit(metric=share_of_zeros, epochs=4, larger_is_better=True, **given)
    assert before.metric is not None
    assert after.metric is not None
    assert after.metric <= 0.01 < before.metric
    assert any("judged by share_of_zeros now" in note for note in after.notes)


def test_a_loss_that_writes_to_its_batch_does_so_once_in_trials() -> None:
    """Else what trials learn from is other than what the training will."""
    least = [9.0]

    def loss(model: nn.Module, batch: Any) -> torch.Tensor:
        x, y = batch
        least[0] = min(least[0], float(x.abs().max()))
        x.mul_(0.5)
        return nn.functional.cross_entropy(model(x), y)

    def metric(model: nn.Module, batch: Any) -> torch.Tensor:
        return accuracy(model(batch[0]), batch[1])

    x, y = points()
    whole = [float(each.abs().max()) for each in x.split(24)]

    class Seen:
        def begin(self, run: Run) -> None:
            assert least[0] >= 0.4 * min(whole)

    fit(
        loss=loss,
        metric=metric,
        train=(x, y),
        batch_size=24,
        strategies="auto",
        valid=points(120, seed=1),
        epochs=40,
        callbacks=[Seen()],
    )
