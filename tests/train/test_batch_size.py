"""batch_size: against a grid, without a trace, and told to all that count in batches."""

from __future__ import annotations

import copy
import math
import random
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset

from outpace.errors import UsageError
from outpace.measure.generators import random_states
from outpace.serve.loader import Loader
from outpace.train.optimizers import times_the_rate
from outpace.train.progress import Telling
from outpace.train.run import Run
from outpace.train.strategies import BatchSize, Constant, LrFinder, OneCycle, Strategy
from outpace.train.strategies import batch_size as module
from outpace.train.twin import Twin
from tests.train.toys import Size, Time, fit, goes_on_exactly, model, points, ready, same, trainer

# --- against a grid --------------------------------------------------------------------------

WIDTH, SAMPLES = 100, 8192
FIXED_S, SAMPLE_S = 1.0, 0.01
"""seconds that a step takes, and each of its samples"""


class Shared(Time):
    """The same for all copies of a model."""

    def __deepcopy__(self, memo: Any) -> Shared:
        return self


class Costly(nn.Module):
    """A line whose steps take the test's time."""

    def __init__(self, time: Time) -> None:
        super().__init__()
        self.time, self.line = time, nn.Linear(WIDTH, 1, bias=False)
        nn.init.zeros_(self.line.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.time.s += FIXED_S + SAMPLE_S * len(x)
        found: torch.Tensor = self.line(x)
        return found


def regression(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Without a floor, so that the gradients' noise scale stays what it is: WIDTH + 1."""
    chance = torch.Generator().manual_seed(seed)
    x = torch.randn(SAMPLES, WIDTH, generator=chance)
    return x, x @ torch.randn(WIDTH, 1, generator=chance)


def rate_for(size: int) -> float:
    """A quarter of the best: 1 / (2 + 2 N / B) for this loss."""
    return 0.125 / (1.0 + (WIDTH + 1) / size)


def learnt(size: int, rate: float, *strategies: Strategy, seed: int = 0) -> tuple[int, float, Any]:
    """The size of batches, the seconds of all steps to a ten thousandth of the loss, and the result."""
    time = Shared()
    net = Costly(time)
    x, y = regression(seed)
    train = Loader(TensorDataset(x, y), size, executor="none", seed=seed)
    at_end = Size()
    result = fit(
        model=net,
        callbacks=[at_end],
        train=train,
        valid=[(x[:256], y[:256])],
        loss=F.mse_loss,
        metric=None,
        target=1e-4 * float(y[:256].square().mean()),
        optimizer=torch.optim.SGD(net.parameters(), rate),
        strategies=[*strategies],
        epochs=100,
        validate_every=1,
        now=time,
        seed=seed,
    )
    assert result.stopped == "target"
    size = at_end.samples
    return size, result.steps * (FIXED_S + SAMPLE_S * size), result


def test_the_size_is_nearly_the_best_of_a_grid() -> None:
    grid = {
        size: fmean(learnt(size, rate_for(size), seed=seed)[1] for seed in range(2))
        for size in (8, 16, 32, 64, 128, 256, 512)
    }
    best = min(grid.values())
    assert grid[8] > 2.0 * best  # a grid on which there is something to lose, in both directions
    assert grid[512] > 1.4 * best
    for start in (8, 512):
        size, _, result = learnt(start, rate_for(start), BatchSize())
        assert grid[size] < 1.1 * best
        assert any(f"batch_size: {size}, not {start}: " in note for note in result.notes)


def test_the_noise_is_told_as_it_is() -> None:
    noise: list[float] = []
    climbed = module.climbed
    for start in (16, 64):

        def noted(start: int, steps: Any, scale: float, left_s: Any) -> int:
            noise.append(scale)
            return climbed(start, steps, scale, left_s)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "climbed", noted)
            learnt(start, rate_for(start), BatchSize())
    assert noise == pytest.approx([WIDTH + 1] * 2, rel=0.5)


def test_the_noise_is_that_of_the_weights_that_are_learnt() -> None:
    """Gradients of others add up from step to step, and would be taken for a signal."""
    noise = []
    for frozen in (True, False):
        net = model()
        assert isinstance(net, nn.Sequential)
        net[0].requires_grad_(not frozen)
        given = {"model": net, "optimizer": torch.optim.SGD(net[3].parameters(), 0.01)}
        twin = Twin(trainer(**given).put_together(Telling(quiet=True)))
        noise.append(twin.noise_scale(ready(), 0.0, math.inf))
    assert noise[0] == noise[1]


def test_batches_that_take_long_are_not_waited_for() -> None:
    time = Time()

    def collate(samples: list[Any]) -> Any:
        time.s += 1.0
        return torch.utils.data.default_collate(samples)

    result = fit(
        train=Loader(data(), 24, executor="none", collate=collate),
        valid=None,
        strategies=[BatchSize(), Constant(rate=0.03)],
        budget=40.0,
        now=time,
    )
    assert "can't be told from so few batches (found in 2.0 s)" in "".join(result.notes)
    assert result.steps > 30


# --- it leaves no trace ----------------------------------------------------------------------


def data(count: int = 2400) -> TensorDataset:
    return TensorDataset(*points(count))


def state_of(run: Run) -> Any:
    states = {
        "model": dict(run.module.state_dict()),
        "optimizer": run.optimizer.state_dict(),
        "random": random_states(),
        "data": run.train.state_dict()["source"],
        "training": [m.training for m in run.module.modules()],
        "gradients": [p.grad is None for p in run.module.parameters()],
    }
    return copy.deepcopy(states)


def test_it_leaves_all_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    states: list[Any] = []
    looks = BatchSize.found

    def found(self: BatchSize, run: Run, *given: Any) -> Any:
        found = looks(self, run, *given)
        return found._replace(samples=48)

    def first_batches(self: BatchSize, run: Run) -> None:
        states.append(state_of(run))
        sizes(self, run)
        states.append(state_of(run))

    sizes = BatchSize.first_batches
    monkeypatch.setattr(BatchSize, "found", found)
    monkeypatch.setattr(BatchSize, "first_batches", first_batches)
    random.seed(1)
    np.random.seed(1)

    def go(size: int, *strategies: Strategy) -> Any:
        train = Loader(data(), size, executor="none")
        net = model(dropout=0.2, norm=True)
        return fit(model=net, train=train, epochs=8, strategies=[*strategies, Constant()])

    result = go(24, LrFinder(), BatchSize())
    assert "batch_size: 48, not 24" in result.notes[0]
    assert same(*states)
    # And the training, with the finder's rate, is what it would be, had the size been known.
    known = go(48, LrFinder())
    assert same(dict(known.weights), dict(result.weights))
    assert result.steps == 8 * 50


@pytest.mark.parametrize("at", [1, 30, 50, 77])
def test_it_goes_on_with_the_size_that_it_found(
    tmp_path: Path, at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = iter((48, 48, 96))
    monkeypatch.setattr(
        BatchSize, "found", lambda self, *given: module.Size(next(sizes), "as is told", 500.0)
    )

    def go(folder: Path, **given: Any) -> Any:
        train = Loader(data(), 24, executor="none")
        strategies = [BatchSize(), Constant(rate=0.02)]
        return fit(
            model=model(dropout=0.3, norm=True), train=train, strategies=strategies, epochs=2,
            checkpoint=folder, every=0, **given,
        )  # fmt: skip

    whole = go(tmp_path / "whole")
    assert whole.steps == 100
    goes_on_exactly(go, tmp_path / "cut", at, whole)


# --- what goes with the size -----------------------------------------------------------------


class Noted:
    """Sizes of batches and rates of each step; how many steps there are to be."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.rates: list[float] = []
        self.steps: int | None = None

    def batch(self, run: Run, batch: Any) -> None:
        self.sizes.append(len(batch[0]))
        self.rates.append(run.optimizer.param_groups[0]["lr"])
        self.steps = run.clock.steps


def noted(found: int, *strategies: Strategy, noise: float = math.inf, **given: Any) -> Noted:
    """A training whose size is said to be found."""
    seen = Noted()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BatchSize, "found", lambda *_: module.Size(found, "as is told", noise))
        fit(
            train=Loader(data(), 24, executor="none"),
            strategies=[*strategies, BatchSize()],
            callbacks=[seen],
            **{"epochs": 4, **given},
        )
    return seen


def test_a_loader_of_the_users_has_its_own_size_again() -> None:
    loader, at_end = Loader(TensorDataset(*points()), 24, executor="none"), Size()
    given: dict[str, Any] = {"train": loader, "epochs": 20, "callbacks": [at_end]}
    fit(strategies=[BatchSize("largest"), OneCycle(rate=0.01)], **given)
    assert at_end.samples > 24
    assert loader.batch_size == 24


def test_the_clock_knows_how_long_an_epoch_is() -> None:
    seen = noted(100, OneCycle(rate=0.02))
    assert set(seen.sizes) == {100}
    assert seen.steps == len(seen.sizes) == 4 * 24
    assert seen.rates[-1] < 0.01 * max(seen.rates)


@pytest.mark.parametrize(("found", "noise", "linear"), [
    (96, math.inf, 4.0), (12, math.inf, 0.5), (96, 1e9, 4.0), (96, 96.0, 2.5), (96, 0.0, 1.0),
])  # fmt: skip
def test_the_rate_goes_with_the_size(found: int, noise: float, linear: float) -> None:
    for kind, times in ((torch.optim.SGD, linear), (torch.optim.AdamW, math.sqrt(linear))):
        net = model()
        optimizer = kind(net.parameters(), 0.01)
        assert times_the_rate(optimizer, 24, found, noise) == pytest.approx(times)
        seen = noted(found, OneCycle(), model=net, optimizer=optimizer, noise=noise, epochs=2)
        assert max(seen.rates) == pytest.approx(0.01 * times, rel=0.01)


def test_a_larger_rate_is_reached_over_the_first_steps() -> None:
    rates = noted(96, Constant(rate=0.01), epochs=8).rates
    assert rates[:20] == pytest.approx([0.01 + 0.03 * step / 20 for step in range(20)])
    assert rates[20:] == pytest.approx([0.04] * 180)
    assert noted(6, Constant(rate=0.01), epochs=1).rates == pytest.approx([0.0025] * 400)


def test_the_finders_rate_is_for_the_size_that_was_found() -> None:
    sizes: list[int] = []
    look = LrFinder.look

    def looked(self: LrFinder, run: Run, began: float) -> str:
        sizes.append(len(run.train.peek(1)[0][0]))
        assert run.clock.steps == 8 * 25
        assert run.rates.scale == 1.0
        return look(self, run, began)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LrFinder, "look", looked)
        noted(96, LrFinder(), Constant(), epochs=8)
    assert sizes == [96]


def test_where_the_finder_finds_none_the_rate_goes_with_the_size() -> None:
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), 0.01)
    seen = noted(96, LrFinder(), OneCycle(), model=net, optimizer=optimizer, epochs=4)
    assert max(seen.rates) == pytest.approx(0.04, rel=0.01)


def test_the_largest_is_no_larger_than_the_data() -> None:
    train = Loader(data(300), 24, executor="none")
    at_end, strategies = Size(), [BatchSize("largest"), OneCycle(rate=0.01)]
    result = fit(train=train, epochs=10, strategies=strategies, callbacks=[at_end])
    assert at_end.samples == 300
    assert "batch_size: 300, not 24: there are no more samples, the rate is 3.5 " in result.notes[0]
    assert result.steps == 10


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"epochs": 2}, "20 steps of 240 samples are too few"),
        ({"epochs": None, "steps": 30}, "30 steps of 240 samples are too few"),
    ],
)
def test_short_trainings_keep_their_size(given: dict[str, Any], said: str) -> None:
    train, at_end = Loader(TensorDataset(*points()), 24, executor="none"), Size()
    given = {"train": train, "callbacks": [at_end], **given}
    result = fit(**given, strategies=["batch_size", "one_cycle"])
    assert said in result.notes[0]
    assert at_end.samples == 24


def test_noise_that_is_not_told_leaves_the_size() -> None:
    train = Loader(data(96), 24, executor="none")
    result = fit(train=train, epochs=40, strategies=["batch_size", "one_cycle"])
    assert "batch_size: 24: the noise of gradients can't be told from so few" in result.notes[0]


def test_a_model_that_cannot_be_copied_keeps_its_size() -> None:
    class Uncopied(nn.Linear):
        def __deepcopy__(self, memo: Any) -> Any:
            raise RuntimeError("not this one")

    train = Loader(data(), 24, executor="none")
    result = fit(model=Uncopied(8, 3), train=train, strategies=["batch_size"], epochs=1)
    assert "no steps on a copy (not this one)" in result.notes[0]


def test_it_says_where_it_can_not_be_used() -> None:
    with pytest.raises(UsageError, match="train= gives ready batches"):
        fit(train=ready(), strategies=["batch_size"])
    with pytest.raises(UsageError, match="size='huge'"):
        BatchSize("huge")  # type: ignore[arg-type]


# --- where epochs end the training -----------------------------------------------------------


def ended(**given: Any) -> tuple[int, str]:
    """The size that batches of eight come to, where steps are mostly overhead, and what is said of it."""
    time, at_end = Shared(), Size()
    net = Costly(time)
    x, y = regression(0)
    result = fit(
        model=net,
        callbacks=[at_end],
        train=Loader(TensorDataset(x[:4096], y[:4096]), 8, executor="none"),
        valid=None,
        metric=None,
        loss=F.mse_loss,
        optimizer=torch.optim.SGD(net.parameters(), rate_for(8)),
        strategies=[BatchSize()],
        now=time,
        **given,
    )
    return at_end.samples, result.notes[0]


def test_where_epochs_end_it_steps_are_not_spent_on_speed() -> None:
    by_time, said = ended(epochs=None, budget=1500.0)
    assert by_time > 32
    assert "epochs" not in said
    by_steps, _ = ended(epochs=None, steps=1024)
    assert by_steps > 8
    by_epochs, said = ended(epochs=2)
    assert by_epochs <= 0.15 * (WIDTH + 1)
    assert "16 would make too few steps of 2 epochs" in said
    assert "times as fast" not in said
    assert ended(epochs=50, budget=1500.0)[0] > 32  # whatever the size, time is what ends it
