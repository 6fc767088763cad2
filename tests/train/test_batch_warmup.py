"""batch_warmup: the sizes that batches have, when they grow, and what it gives."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset

from outpace.errors import UsageError
from outpace.serve.loader import Loader
from outpace.train.run import Run
from outpace.train.strategies import (
    Accumulation,
    BatchWarmup,
    Divergence,
    OneCycle,
    Strategy,
    batch_warmup,
)
from tests.train.toys import Stop, Time, fit, goes_on_exactly, model, points, ready

WIDTH, SAMPLES = 100, 8192


X, Y = points()


class Sizes:
    """The size that each batch is asked to have."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    def batch(self, run: Run, batch: Any) -> None:
        assert isinstance(run.train.source, Loader)
        self.seen.append(run.train.source.batch_size)


class Samples(Sizes):
    """And the samples that it has, which are numbers of points; the share of the budget that is used."""

    def __init__(self) -> None:
        super().__init__()
        self.drawn: list[int] = []
        self.used: list[float] = []
        self.smaller = 0

    def batch(self, run: Run, batch: Any) -> Any:
        super().batch(run, batch)
        self.drawn += batch[0].tolist()
        self.used.append(run.clock.used)
        self.smaller += len(batch[0]) < self.seen[-1]
        return X[batch[0]], batch[1]


def numbered(size: int) -> Loader:
    return Loader(TensorDataset(torch.arange(len(X)), Y), size, executor="none")


def test_by_the_clock_they_double_in_the_middle_of_epochs_and_no_sample_is_lost() -> None:
    look, train = Samples(), numbered(24)
    result = fit(
        train=train,
        strategies=[BatchWarmup(until=0.5), OneCycle(rate=0.03)],
        callbacks=[look],
        epochs=5,
    )
    assert look.seen == sorted(look.seen)
    assert set(look.seen) == {3, 6, 12, 24}
    assert look.smaller <= 5  # the last one of an epoch
    for size, share in ((6, 1 / 6), (12, 1 / 3), (24, 1 / 2)):
        assert look.used[look.seen.index(size)] == pytest.approx(share, abs=0.02)
    for epoch in range(5):
        assert sorted(look.drawn[240 * epoch : 240 * (epoch + 1)]) == list(range(240))
    assert result.steps == len(look.seen)
    assert (result.epochs, result.stopped) == (5, "epochs")
    assert result.history[-1].rate == pytest.approx(0.0)
    assert train.batch_size == 24


@pytest.mark.parametrize(("norm", "smallest"), [(False, 1), (True, 2)])
def test_no_norm_of_batches_is_given_a_single_sample(norm: bool, smallest: int) -> None:
    look, train = Sizes(), Loader(TensorDataset(X, Y), 8, executor="none")
    fit(
        model=model(norm=norm),
        train=train,
        strategies=[BatchWarmup(), OneCycle(rate=0.03)],
        callbacks=[look],
        epochs=2,
    )
    assert look.seen == sorted(look.seen)
    assert (look.seen[0], look.seen[-1]) == (smallest, 8)


def test_a_budget_is_used_up_though_a_validation_is_worth_fewer_steps_as_they_grow() -> None:
    time = Time()

    def loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        trains.append(torch.is_grad_enabled())
        if any(trains):  # before it a look at a validation
            time.s += len(targets) / 24 * (1.0 if trains[-1] else 0.3)
        return F.cross_entropy(outputs, targets)

    trains = list[bool]()
    result = fit(
        loss=loss,
        train=points(4800),
        valid=points(960, seed=1),
        batch_size=24,
        strategies=[BatchWarmup(), OneCycle(rate=0.03)],
        budget=100.0,
        now=time,
    )
    assert 0.9 * 100.0 < result.seconds <= 100.0


def test_batches_whose_gradients_are_added_up_double_too() -> None:
    look = Samples()
    result = fit(
        train=numbered(16),
        strategies=[BatchWarmup(doublings=1), Accumulation(4), OneCycle(rate=0.03)],
        callbacks=[look],
        epochs=3,
    )
    assert look.seen == sorted(look.seen)
    assert set(look.seen) == {8, 16}
    for epoch in range(3):
        assert sorted(look.drawn[240 * epoch : 240 * (epoch + 1)]) == list(range(240))
    assert result.epochs == 3


# --- what it gives ---------------------------------------------------------------------------


def regression(noise: float, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Inputs, targets without noise, and with it."""
    chance = torch.Generator().manual_seed(seed)
    x = torch.randn(SAMPLES, WIDTH, generator=chance)
    y = x @ torch.randn(WIDTH, 1, generator=chance)
    return x, y, y + noise * torch.randn(SAMPLES, 1, generator=chance)


def learnt(noise: float, size: int, rate: float, strategies: list[Strategy], **given: Any) -> Any:
    """SGD from zero; validated without noise."""
    x, y, noisy = regression(noise)
    net = nn.Linear(WIDTH, 1, bias=False)
    nn.init.zeros_(net.weight)
    return fit(
        model=net,
        train=Loader(TensorDataset(x, noisy), size, executor="none"),
        valid=[(x, y)],
        loss=F.mse_loss,
        metric=None,
        optimizer=torch.optim.SGD(net.parameters(), rate),
        strategies=strategies,
        **given,
    )


def test_in_the_same_time_it_learns_more_than_any_one_size() -> None:
    """A step takes the time of its samples: small batches learn fast, large ones end lower."""

    def loss(size: int, *strategies: Strategy) -> float:
        time = Time()

        class Takes:
            def batch(self, run: Run, batch: Any) -> None:
                time.s += 0.1 + 0.01 * len(batch[0])

        row = learnt(
            1.0, size, 0.05, [*strategies], callbacks=[Takes()], budget=100.0, now=time
        ).history[-1]
        return row.valid_loss or math.inf

    fixed = {size: loss(size) for size in (64, 128, 256, 512)}
    assert loss(512, BatchWarmup(until=0.5)) < 0.8 * min(fixed.values())
    assert fixed[64] > fixed[128] < fixed[512]  # there is something to lose either way


def test_by_noise_they_double_where_gradients_have_become_noisy() -> None:
    """Their noise scale is WIDTH + 1, and more as soon as the targets' noise is what is left."""
    seen = {}
    for noise in (0.0, 1.0):
        look = Sizes()
        result = learnt(
            noise,
            2048,
            0.01,
            [BatchWarmup("noise")],
            callbacks=[look],
            steps=4 * batch_warmup.EVERY - 1,
        )
        seen[noise] = look.seen
        told = [note for note in result.notes if "gradients are half noise at" in note]
        assert len(told) == len(set(look.seen)) - 1
    assert set(seen[0.0]) == {256}
    assert set(seen[1.0][: 2 * batch_warmup.EVERY]) == {256}
    assert max(seen[1.0]) > 256


def test_the_noise_is_that_of_the_weights_that_are_learnt() -> None:
    """Gradients of others add up from step to step, and would be taken for a signal."""
    seen = []
    for frozen in (True, False):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 3))
        net[0].requires_grad_(not frozen)
        look = Sizes()
        chance = torch.Generator().manual_seed(0)
        fit(
            model=net,
            train=(points(2400)[0], torch.randint(3, (2400,), generator=chance)),
            batch_size=16,
            valid=None,
            optimizer=torch.optim.SGD(net[2].parameters(), 0.01),
            strategies=[BatchWarmup("noise")],
            callbacks=[look],
            steps=3 * batch_warmup.EVERY,
        )
        seen.append(look.seen)
    assert seen[0] == seen[1]
    assert seen[0][-1] > seen[0][0]


def test_small_batches_grow_to_the_noise() -> None:
    look = Sizes()
    steps = 6 * batch_warmup.EVERY
    learnt(0.0, 64, 0.001, [BatchWarmup("noise")], callbacks=[look], steps=steps)
    assert look.seen[0] == 8
    assert look.seen[-1] == 64


# --- it goes on ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("by", "at"),
    [
        pytest.param("clock", 90, marks=pytest.mark.slow),
        ("clock", 130),
        pytest.param("noise", 29, marks=pytest.mark.slow),
        ("noise", 45),
    ],
)
def test_it_goes_on_after_a_doubling_and_while_it_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: Any, at: int
) -> None:
    monkeypatch.setattr(batch_warmup, "EVERY", 16)

    def go(folder: Path, **given: Any) -> Any:
        return fit(
            train=Loader(TensorDataset(*points()), 24, executor="none"),
            strategies=[BatchWarmup(by), OneCycle(rate=0.03)],
            checkpoint=folder,
            every=0,
            epochs=6,
            **given,
        )

    whole = go(tmp_path / "whole")
    again = goes_on_exactly(go, tmp_path / "cut", at, whole)
    assert sum("samples from step" in note for note in again.notes) == 3
    assert (again.notes, again.steps) == (whole.notes, whole.steps)


def test_a_loader_is_left_as_it_came_though_the_checkpoint_is_of_another(tmp_path: Path) -> None:
    def go(loader: Loader, **given: Any) -> Any:
        strategies: list[Strategy] = [BatchWarmup("clock"), OneCycle(rate=0.03)]
        folder = tmp_path / "kept"
        return fit(
            train=loader, strategies=strategies, checkpoint=folder, every=0, epochs=6, **given
        )

    with pytest.raises(KeyboardInterrupt):
        go(Loader(TensorDataset(*points()), 24, executor="none"), callbacks=[Stop(at=30)])
    loader = Loader(TensorDataset(*points()), 12, executor="none")
    assert go(loader).epochs == 6
    assert loader.batch_size == 12


def test_a_roll_back_leaves_the_size() -> None:
    class Breaks:
        def loss(self, run: Run, loss: torch.Tensor) -> torch.Tensor | None:
            return loss * math.nan if run.step == 120 else None

    look = Sizes()
    result = fit(
        train=Loader(TensorDataset(*points()), 24, executor="none"),
        strategies=[Divergence(every=1000), BatchWarmup(until=0.2), OneCycle(rate=0.02)],
        callbacks=[Breaks(), look],
        epochs=8,
    )
    assert any("back to the weights of step 0" in note for note in result.notes)
    assert look.seen[128] == look.seen[127] == 24
    assert set(look.seen[128:]) == {24}
    assert result.epochs == 8


def test_what_it_cannot_do_is_told() -> None:
    with pytest.raises(UsageError, match="train= gives ready batches"):
        fit(strategies=["batch_warmup"], train=ready())
    with pytest.raises(UsageError, match="doublings=0"):
        BatchWarmup(doublings=0)
    with pytest.raises(UsageError, match="batch_warmup needs an end"):
        fit(
            strategies=["batch_warmup"],
            train=points(),
            batch_size=24,
            target=0.5,
            epochs=None,
        )
