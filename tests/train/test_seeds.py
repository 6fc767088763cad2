"""Several seeds, the best kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import outpace
from outpace.errors import UsageError
from outpace.train import trainer as trainers
from outpace.train.result import Choice, Spent
from outpace.train.run import Run
from outpace.train.seeds import best_of, mean_of
from outpace.train.strategies import Constant, OneCycle, Pruning, Strategy
from outpace.train.trainer import Trainer
from outpace.train.trials import Parts
from tests.train.test_resume import Growing
from tests.train.test_trials import Ticking
from tests.train.toys import Time, model, same, trainer

RATES = [0.0001, 0.001, 0.03, 0.0003]
"""of the seeds: that of the third is right"""


class Steps:
    """Counts them for each seed."""

    def __init__(self) -> None:
        self.of: dict[int, int] = {}

    def by(self, seed: int) -> Any:
        class Counts:
            def step_end(self, run: Run) -> None:
                of[seed] = of.get(seed, 0) + 1

        of = self.of
        return Counts()


def maker(counts: Steps, **given: Any) -> Any:
    def make(seed: int) -> Trainer:
        settings = {"strategies": [OneCycle(rate=RATES[seed % 4])], "steps": 120, **given}
        return trainer(model=model(seed), callbacks=[counts.by(seed)], **settings)

    return make


def test_halving_keeps_the_best() -> None:
    steps = Steps()
    result = best_of(maker(steps), seeds=4, quiet=True)
    assert result.kept[0].seed == 2
    assert steps.of[2] == 120
    assert sorted(steps.of.values()) == [40, 40, 120, 120]
    assert sum(row.step == 120 for row in result.history) == 1
    assert result.metric == result.kept[0].metric >= result.kept[1].metric
    said = "\n".join(result.notes)
    assert "seeds 2 (" in said
    assert "of 4 seeds 2 is the best" in said
    session = result.session
    assert [(each.seed, each.metric) for each in session.kept] == [
        (each.seed, each.metric) for each in result.kept
    ]
    assert session.notes == result.notes
    assert "weights" not in result.told()["kept"][0]


def test_a_seed_whose_loss_is_not_a_number_is_dropped() -> None:
    class Breaks:
        def loss(self, run: Run, loss: torch.Tensor) -> torch.Tensor:
            return loss * float("nan")

    def make(seed: int) -> Trainer:
        given = {"strategies": [OneCycle(rate=RATES[seed])], "steps": 60, "metric": None}
        return trainer(model=model(seed), callbacks=[Breaks()] if seed == 0 else [], **given)

    result = best_of(make, seeds=3, quiet=True)
    assert [each.seed for each in result.kept] == [2, 1]


def test_what_goes_on_is_what_was_not_interrupted() -> None:
    """A training in three rounds ends with the bits of one in a piece, but for what a validation more
    changes, which is nothing.
    """
    result = best_of(maker(Steps()), seeds=5, quiet=True, average=False)
    best = result.kept[0].seed
    whole = maker(Steps())(best)
    whole.seed = best
    assert same(dict(whole.fit(quiet=True).weights), dict(result.weights))


@pytest.mark.parametrize("seeds", [2, 3, 4, 6])
def test_the_budget_is_for_all_of_them(seeds: int) -> None:
    time = Time()
    loss = Ticking(time)
    make = maker(Steps(), steps=None, loss=loss, now=time)
    result = best_of(make, seeds=seeds, budget=400.0, quiet=True)
    assert 0.8 * 400.0 <= time.s - 100.0 <= 400.0
    assert result.kept[0].seed == 2 or seeds == 2
    assert result.history[-1].rate == pytest.approx(0.0, abs=0.001)


def test_a_target_ends_all() -> None:
    steps = Steps()
    result = best_of(maker(steps, target=0.5), seeds=4, quiet=True)
    assert result.stopped == "target"
    assert len(result.kept) == 1
    assert (result.metric or 0.0) >= 0.5


def test_a_target_that_is_reached_as_a_round_ends_ends_all() -> None:
    """The round is what ended that training, and the target is reached all the same."""
    steps = Steps()
    result = best_of(maker(steps, target=0.01, steps=12), seeds=4, quiet=True)
    assert result.time_to_target_s is not None
    assert list(steps.of) == [0]


def around(centre: dict[str, torch.Tensor], seed: int) -> torch.nn.Module:
    """A model whose weights lie to one side of a good one's, the other seed's to the other."""
    net = model()
    net.load_state_dict(centre)
    chance = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in net.parameters():
            noise = torch.randn(parameter.shape, generator=chance)
            parameter.add_(noise, alpha=0.5 if seed % 2 else -0.5)
    return net


def test_averages_are_taken_where_they_are_better_only() -> None:
    good = trainer(epochs=15)
    good.fit(quiet=True)
    centre = good.model.state_dict()

    def make(seed: int) -> Trainer:
        standing = [Constant(rate=1e-9)]
        return trainer(model=around(centre, seed), steps=20, strategies=standing)

    averaged = best_of(make, seeds=2, quiet=True)
    assert averaged.metric is not None
    assert averaged.metric > max(kept.metric for kept in averaged.kept)
    assert averaged.notes[-1].endswith("taken")
    alone = best_of(make, seeds=2, quiet=True, average=False)
    assert alone.metric == alone.kept[0].metric
    apart = best_of(maker(Steps()), seeds=2, quiet=True)
    assert apart.notes[-1].endswith("left out")
    assert same(dict(apart.weights), dict(apart.kept[0].weights))


def test_pruned_seeds_have_no_mean() -> None:
    """Where zeros of one are none of the other, few are left."""

    def make(seed: int) -> Trainer:
        return trainer(strategies=[Constant(rate=0.02), Pruning(0.5)], epochs=8)

    result = best_of(make, seeds=2, quiet=True)
    assert len(result.kept) == 2
    assert not any("the mean with seed" in note for note in result.notes)
    assert float((result.weights["0.weight"] == 0).float().mean()) == 0.5


def test_mistakes_are_told() -> None:
    assert outpace.best_of is best_of
    with pytest.raises(UsageError, match="seeds=1"):
        best_of(maker(Steps()), seeds=1)
    with pytest.raises(UsageError, match="no valid="):
        best_of(maker(Steps(), valid=None, metric=None), seeds=2, quiet=True)
    endless = maker(Steps(), steps=None, epochs=None, target=2.0, strategies=[Constant(rate=0.1)])
    with pytest.raises(UsageError, match="whose end is not known"):
        best_of(endless, seeds=2, quiet=True)


class Ends:
    """Notes when each training ends, and what it is."""

    def __init__(self) -> None:
        self.seconds: dict[int, list[float]] = {}
        self.names: list[str] = []
        self.rate = 0.0

    def by(self, seed: int) -> Any:
        class Noted:
            def end(self, run: Run) -> None:
                noted.seconds.setdefault(seed, []).append(run.clock.elapsed)
                noted.names = [each.name for each in run.events.strategies]
                noted.rate = run.rates.peak

        noted = self
        return Noted()


class Starting(Strategy):
    """Takes an eighth of the whole training before its first step, as lr_finder may."""

    name = "starting"

    def __init__(self, time: Time) -> None:
        self.time = time

    def begin(self, run: Run) -> None:
        if not run.resumed:
            self.time.s += run.clock.seconds / 8


@pytest.mark.parametrize("way", ["auto", "lr_finder", "starting", "plain"])
@pytest.mark.parametrize("seeds", [3, pytest.param(4, marks=pytest.mark.slow)])
def test_seeds_are_given_as_much_of_a_round_each(
    way: str, seeds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    time, ends, tried = Time(), Ends(), list[float]()

    def settled(parts: Parts, *_: Any) -> tuple[Choice, list[str], Spent]:
        tried.append(0.15 * parts.clock.seconds)
        time.s += tried[-1]
        return Choice(rate=0.03), ["rates were tried"], Spent(tried[-1])

    monkeypatch.setattr(trainers, "settled", settled)

    def make(seed: int) -> Trainer:
        own = [Starting(time), OneCycle(rate=0.03)]
        strategies: dict[str, Any] = {
            "auto": "auto",
            "lr_finder": ["auto", "lr_finder"],
            "starting": own,
            "plain": own[1:],
        }
        given = {"strategies": strategies[way], "loss": Ticking(time), "now": time}
        return trainer(model=model(seed), epochs=None, callbacks=[ends.by(seed)], **given)

    result = best_of(make, seeds=seeds, budget=1200.0, quiet=True)
    first = [seconds[0] for seconds in ends.seconds.values()]
    assert len(first) == seeds
    assert max(first) <= 1.05 * min(first)
    assert 0.8 * 1200.0 <= time.s - 100.0 <= 1200.0
    asked = way in ("auto", "lr_finder")
    assert len(tried) == asked
    assert result.notes.count("rates were tried") == asked
    assert ends.rate == pytest.approx(0.03)
    if asked:
        assert ends.names == ["divergence", "one_cycle"]


def test_seeds_with_other_strategies_have_trials_of_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = [Choice(), Choice(taken=("ema",))]
    monkeypatch.setattr(trainers, "settled", lambda *_: (found.pop(), [], Spent()))
    ends = [Ends(), Ends()]

    def make(seed: int) -> Trainer:
        own = OneCycle(rate=0.01) if seed % 2 else Constant(rate=0.01)
        strategies = ["auto", own]
        callbacks = [ends[seed % 2].by(seed)]
        return trainer(model=model(seed), steps=40, strategies=strategies, callbacks=callbacks)

    best_of(make, seeds=4, quiet=True)
    assert not found
    assert ends[0].names == ["divergence", "ema", "constant"]
    assert ends[1].names == ["divergence", "one_cycle"]


def test_a_mean_keeps_the_versions_of_modules() -> None:
    state: Any = model(norm=True).state_dict()
    mean: Any = mean_of([state, state])
    assert same(dict(mean), dict(state))
    assert mean._metadata == state._metadata


def test_seeds_whose_buffers_grew_apart_have_no_mean() -> None:
    class Longer:
        def __init__(self, times: int) -> None:
            self.times = times

        def batch(self, run: Run, batch: Any) -> Any:
            return torch.cat([batch[0]] * self.times, 1), batch[1]

    def make(seed: int) -> Trainer:
        return trainer(model=Growing(), callbacks=[Longer(1 + seed % 2)], epochs=1)

    result = best_of(make, seeds=2, quiet=True)
    assert "buffers have other shapes" in result.notes[-1]


def test_a_folder_for_checkpoints_is_not_ignored_without_a_word(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="checkpoint= is given"):
        best_of(maker(Steps(), checkpoint=tmp_path / "runs"), seeds=2, quiet=True)
    assert not (tmp_path / "runs").exists()


def test_what_was_trained_is_there_where_no_mean_can_be_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(*_: Any) -> Any:
        raise AttributeError("'dict' object has no attribute 'shape'")

    monkeypatch.setattr("outpace.train.seeds.mean_of", fails)
    result = best_of(maker(Steps()), 3, average=True)
    assert result.metric is not None
    assert any("no mean of the best was taken" in note for note in result.notes)


def test_a_loss_that_learns_itself_judges_no_mean() -> None:
    """Each seed's is another one."""

    class Tempered(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = torch.nn.Parameter(torch.ones(()))

        def forward(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.cross_entropy(self.scale * outputs, targets)

    def make(seed: int) -> Trainer:
        return trainer(loss=Tempered(), metric=None, strategies=[Constant(rate=0.02)], epochs=2)

    result = best_of(make, seeds=2, quiet=True)
    assert not any("the mean with seed" in note for note in result.notes)


def test_a_mean_of_complex_weights() -> None:
    one, other = torch.tensor([1.0 + 2.0j]), torch.tensor([3.0 - 4.0j])
    assert torch.equal(mean_of([{"w": one}, {"w": other}])["w"], torch.tensor([2.0 - 1.0j]))
