"""accumulation: as one batch that holds them all, and as many as pay."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from outpace.errors import UsageError
from outpace.serve.loader import Loader
from outpace.train.run import Run
from outpace.train.strategies import (
    Accumulation,
    BatchSize,
    Constant,
    OneCycle,
    SequenceLength,
    Strategy,
)
from tests.train.test_batch_size import Costly, Noted, Shared, rate_for, regression
from tests.train.toys import (
    Reader,
    Slow,
    Stop,
    Time,
    fit,
    goes_on_exactly,
    model,
    points,
    ready,
    token_loss,
    tokens,
)


def double(batches: list[Any]) -> list[Any]:
    return [(x.double(), y) for x, y in batches]


def near(one: Any, other: Any) -> bool:
    return all(torch.allclose(one[name], other[name], 0.0, 1e-12) for name in one)


@pytest.mark.parametrize("count", [2, 3, 4])
@pytest.mark.parametrize("samples", [240, 244])
def test_it_is_the_step_of_one_large_batch(count: int, samples: int) -> None:
    """To rounding; what is left at the end of an epoch too, where the last batch is smaller as well."""

    def go(size: int, *strategies: Strategy) -> Any:
        return fit(
            model=model().double(),
            train=double(ready(samples, size)),
            valid=None,
            metric=None,
            strategies=[*strategies, OneCycle(rate=0.03)],
            epochs=3,
        )

    ours, whole = go(8, Accumulation(count)), go(8 * count)
    assert ours.steps == whole.steps == 3 * -(-samples // (8 * count))
    assert near(ours.weights, whole.weights)
    losses = [[row.train_loss for row in result.history] for result in (ours, whole)]
    assert losses[0] == pytest.approx(losses[1])
    assert not near(go(8).weights, whole.weights)


class Told:
    """What callbacks are told of a step."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def batch(self, run: Run, batch: Any) -> Any:
        self.events.append(f"batch of {len(batch[0])}")
        return batch[0], batch[1]

    def loss(self, run: Run, loss: torch.Tensor) -> torch.Tensor:
        self.events.append("loss")
        return 2.0 * loss

    def gradients(self, run: Run) -> None:
        self.events.append("gradients")

    def step_end(self, run: Run) -> None:
        self.events.append("step")


def test_each_batch_is_told_and_each_step_once() -> None:
    told = Told()
    given = {"train": ready(60, 12), "epochs": 1}
    strategies = [Accumulation(2), Constant(rate=0.0)]
    result = fit(**given, strategies=strategies, callbacks=[told])
    one = ["batch of 12", "loss"]
    assert told.events == [*one, *one, "gradients", "step"] * 2 + [*one, "gradients", "step"]
    plain = fit(**given, strategies=strategies)
    assert result.steps == plain.steps == 3
    assert plain.history[0].train_loss is not None
    assert result.history[0].train_loss == pytest.approx(2.0 * plain.history[0].train_loss)


def test_strategies_change_each_batch() -> None:
    lengths: list[int] = []

    class Lengths:
        def batch(self, run: Run, batch: Any) -> None:
            lengths.append(batch[0].shape[1])

    strategies = [Accumulation(2), SequenceLength(), OneCycle(rate=0.01)]
    fit(model=Reader(), train=tokens(), loss=token_loss, valid=None, metric=None, epochs=5,
        strategies=strategies, callbacks=[Lengths()])  # fmt: skip
    assert len(lengths) == 40
    assert lengths == sorted(lengths)
    assert set(lengths) > {8, 64}


WAYS = {
    "batches": lambda: ready(132, 12),
    "Loader": lambda: Loader(TensorDataset(*points(132)), 12, executor="none"),
    "DataLoader": lambda: DataLoader(TensorDataset(*points(132)), 12, shuffle=True),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("at", [1, 3, 4, 5, 6, 7, 11])
def test_it_goes_on_from_any_step(tmp_path: Path, way: str, at: int) -> None:
    """Eleven batches, three together: four steps an epoch, the last of two."""

    def go(folder: Path, **given: Any) -> Any:
        torch.manual_seed(0)
        return fit(
            model=model(dropout=0.3),
            train=WAYS[way](),
            strategies=[Accumulation(3), OneCycle(rate=0.03)],
            checkpoint=folder,
            every=0,
            epochs=3,
            **given,
        )

    whole = go(tmp_path / "whole")
    assert whole.steps == 12
    goes_on_exactly(go, tmp_path / "cut", at, whole)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_another_number_goes_on_with_the_samples_that_are_left(tmp_path: Path, count: int) -> None:
    def go(given: int, *callbacks: Any) -> list[int]:
        seen: list[int] = []

        class Seen:
            def begin(self, run: Run) -> None:
                seen.append(run.step)

            def batch(self, run: Run, batch: Any) -> None:
                seen.extend(batch[0][:, 0].int().tolist())

        x, y = points(96)
        x[:, 0] = torch.arange(96)
        train = Loader(TensorDataset(x, y), 8, executor="none")
        with suppress(KeyboardInterrupt):
            fit(train=train, strategies=[Accumulation(given), Constant(rate=0.0)], epochs=2,
                checkpoint=tmp_path, every=0, callbacks=[Seen(), *callbacks])  # fmt: skip
        return seen

    _, *before = go(3, Stop(2))
    step, *after = go(count)
    assert step in (1, 2)
    seen = before[: 24 * step] + after
    assert sorted(seen[:96]) == sorted(seen[96:]) == list(range(96))


# --- as many as pay --------------------------------------------------------------------------


class CostlySGD(torch.optim.SGD):
    """Its step takes the test's time."""

    def __init__(self, parameters: Any, rate: float, time: Shared, seconds: float) -> None:
        super().__init__(parameters, rate)
        self.param_groups[0]["takes"] = time, seconds  # attributes are not copied with an optimizer

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        time, seconds = self.param_groups[0]["takes"]
        time.s += seconds
        super().step(closure)


def found(
    step_s: float, noise: float = 0.0, *, target: float | None = 1e-30
) -> tuple[int, str, Noted]:
    """How many batches of ten, whose gradients take 1.1 s, make a step that takes so long by itself. With a
    target, epochs are but a limit.
    """
    time = Shared()
    net = Costly(time)
    x, y = regression(0)
    y = y + noise * torch.randn(y.shape, generator=torch.Generator().manual_seed(1))
    seen = Noted()
    numbers: list[int] = []

    class Number:
        def begin(self, run: Run) -> None:
            numbers.append(run.train.together)

    result = fit(
        model=net,
        train=Loader(TensorDataset(x[:1200], y[:1200]), 10, executor="none"),
        valid=[(x[:8], y[:8])],
        target=target,
        metric=None,
        loss=F.mse_loss,
        optimizer=CostlySGD(net.parameters(), 0.001, time, step_s),
        strategies=[Accumulation()],
        callbacks=[Number(), seen],
        epochs=8,
        now=time,
    )
    (said,) = [note for note in result.notes if note.startswith("accumulation")]
    return numbers[0], said, seen


def test_as_many_as_pay_are_taken() -> None:
    count, said, seen = found(step_s=11.0)
    best = (11.0 * 101 / (1.1 * 10)) ** 0.5  # where (11 + 1.1 k) (1 + 101 / 10 k) is least
    assert 0.75 * best < count < 1.35 * best
    assert f"accumulation: {count} batches a step: a step takes 12.1 s, its gradients 1.1 s" in said
    assert seen.steps == 8 * -(-120 // count)
    assert "the rate is " in said
    assert max(seen.rates) > 0.002


def test_where_epochs_end_it_none_are() -> None:
    most, _, _ = found(step_s=11.0)
    count, said, seen = found(step_s=11.0, target=None)
    assert (count, seen.steps) == (1, 8 * 120)
    assert "accumulation: none: a step takes 12.1 s, its gradients 1.1 s" in said
    assert f"; {most} batches would make too few steps of 8 epochs" in said


def test_the_larger_rate_is_reached_in_a_tenth_of_the_steps_that_there_are_with_it() -> None:
    _, _, seen = found(step_s=11.0)
    reached = seen.rates.index(max(seen.rates))
    assert 0.0 < reached <= 0.11 * len(seen.rates)


def test_a_target_is_reached_sooner_where_steps_are_dear() -> None:
    """What it takes to find their number included."""
    seconds = []
    for strategies in ([Accumulation()], []):
        time = Shared()
        net = Costly(time)
        x, y = regression(0)
        result = fit(
            model=net,
            train=Loader(TensorDataset(x, y), 10, executor="none"),
            valid=[(x[:256], y[:256])],
            metric=None,
            loss=F.mse_loss,
            target=1e-6 * float(y[:256].square().mean()),
            optimizer=CostlySGD(net.parameters(), rate_for(10), time, 11.0),
            strategies=strategies,
            epochs=4,
            validate_every=1,
            now=time,
        )
        assert result.time_to_target_s is not None
        seconds.append(result.time_to_target_s)
    assert seconds[0] < 0.9 * seconds[1]


def test_none_are_where_the_step_is_cheap() -> None:
    count, said, seen = found(step_s=0.01)
    assert count == 1
    assert "accumulation: none: a step takes" in said
    assert set(seen.rates) == {0.001}


def test_batches_that_take_long_are_not_waited_for() -> None:
    time = Time()
    result = fit(
        train=Slow(ready(100 * 24), time, 1.0),
        valid=None,
        strategies=[Accumulation(), Constant(rate=0.03)],
        budget=40.0,
        now=time,
    )
    assert "can't be told from so few batches (found in 2.0 s)" in "".join(result.notes)
    assert result.steps > 30


def test_it_says_where_it_can_not_be_used() -> None:
    with pytest.raises(UsageError, match="batches=0"):
        Accumulation(0)
    with pytest.raises(UsageError, match="whose size batch_size is still to find"):
        fit(train=points(), batch_size=24, strategies=[Accumulation(), BatchSize()])
    result = fit(strategies=["accumulation"], epochs=2)
    assert "accumulation: none: 20 steps are too few" in result.notes[0]


def test_both_go_together() -> None:
    train = Loader(TensorDataset(*points(2400)), 24, executor="none")
    result = fit(
        model=nn.Linear(8, 3), train=train, epochs=10,
        strategies=[BatchSize(), Accumulation(), OneCycle(rate=0.01)],
    )  # fmt: skip
    for note, name in zip(result.notes, ("batch_size", "accumulation"), strict=False):
        assert note.startswith(f"{name}: ")
        assert "are too few" not in note
        assert "on a copy" not in note
