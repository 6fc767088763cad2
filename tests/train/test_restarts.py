"""Cycles that get longer: where they end, what they gain for a target, and that they go on exactly."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from outpace.train.run import Run
from outpace.train.strategies import Divergence, Ema, OneCycle, Restarts, Strategy
from outpace.train.strategies.restarts import PACE, fitting, place
from tests.train.test_divergence import Breaks
from tests.train.test_strategies import on_noise, rates
from tests.train.toys import Slow, Stop, Time, fit, goes_on_exactly, model, ready

RATE = 0.03


def ends(noted: list[float]) -> list[int]:
    """The steps after which the rate rises anew, and the last one."""
    low = 0.035 * max(noted)  # below where a cycle begins
    pairs = enumerate(itertools.pairwise(noted), 1)
    return [step for step, (one, other) in pairs if one < low and one < other] + [len(noted)]


# --- where cycles end ------------------------------------------------------------------------


def test_each_cycle_is_twice_as_long_and_falls_to_zero() -> None:
    noted = rates(Restarts(RATE, first=66), steps=7 * 66)
    bounds = [0, 66, 198, 462]
    assert ends(noted) == bounds[1:]
    for begin, end in itertools.pairwise(bounds):
        cycle = noted[begin:end]
        top = cycle.index(max(cycle))
        assert cycle[0] == pytest.approx(RATE / 25)
        assert cycle[top] == pytest.approx(RATE)
        assert cycle[top:][: len(cycle) // 3] == pytest.approx([RATE] * (len(cycle) // 3))
        assert top < 0.1 * len(cycle)
        assert cycle[top:] == sorted(cycle[top:], reverse=True)
        assert cycle[-1] < 0.04 * RATE


def test_all_cycles_may_be_as_long() -> None:
    noted = rates(Restarts(RATE, first=66, factor=1.0), steps=4 * 66 + 20)
    assert ends(noted) == [71, 142, 213, 284]
    assert noted[-1] < 0.04 * RATE


def test_each_cycle_is_validated_at_its_end() -> None:
    result = fit(strategies=[Restarts(RATE, first=33)], steps=231)
    assert {row.step for row in result.history} == {*range(10, 240, 10), 33, 99, 231}
    without = fit(strategies=[Restarts(RATE, first=33)], steps=231, valid=None, metric=None)
    assert 33 not in {row.step for row in without.history}


@settings(max_examples=200)
@given(st.integers(1, 10**7), st.integers(1, 1000), st.sampled_from([1.5, 2.0, 3.0, 4.0]))
def test_the_last_cycle_ends_with_the_training(steps: int, first: int, factor: float) -> None:
    cycles = fitting(steps / first, factor)
    assert place(1.0, cycles, factor) == (cycles - 1, pytest.approx(1.0))
    assert place(0.0, cycles, factor) == (0, 0.0)
    whole = factor**cycles - 1.0
    bounds = [(factor**k - 1.0) / whole for k in range(cycles + 1)]
    lengths = [steps * (end - begin) for begin, end in itertools.pairwise(bounds)]
    assert cycles == 1 or lengths[0] >= first * (1 - 1e-6)
    assert lengths[0] < first * (1 + factor)  # else there would be another one
    assert lengths[-1] >= (1 - 1 / factor) * steps * (1 - 1e-6)
    for k, (begin, end) in enumerate(itertools.pairwise(bounds)):
        assert place((begin + end) / 2, cycles, factor) == (k, pytest.approx(0.5))
        assert place(begin, cycles, factor) == (k, pytest.approx(0.0, abs=1e-6))


@pytest.mark.parametrize(("budget", "cycles"), [(60.0, 1), (150.0, 2), (700.0, 4)])
def test_the_last_cycle_ends_with_the_budget(budget: float, cycles: int) -> None:
    time, train = Time(), ready()
    strategy = Restarts(RATE, first=40)
    noted = rates(strategy, train=Slow(train, time, 1.0), budget=budget, now=time)
    assert len(noted) == pytest.approx(budget, abs=4)
    assert len(ends(noted)) == cycles == strategy.cycles
    assert noted[-1] < 0.1 * RATE


def test_too_few_steps_to_know_the_pace_are_one_cycle() -> None:
    time = Time()
    noted = rates(Restarts(RATE, first=1), train=Slow(ready(), time, 1.0), budget=9.0, now=time)
    assert 3 < len(noted) < PACE
    assert len(ends(noted)) == 1
    assert noted[-1] < 0.5 * RATE


def test_a_cycle_is_longer_than_its_validation() -> None:
    def counted(batches: int) -> int:
        strategy = Restarts(RATE, first=10)
        fit(strategies=[strategy], steps=310, valid=ready(24 * batches, seed=1))
        return strategy.cycles

    assert counted(5) == 5
    assert counted(200) == 1


# --- what they gain --------------------------------------------------------------------------


def steps_to(target: float | None, steps: int, *strategies: Strategy) -> Any:
    made = on_noise(strategies, 1, None, target=target, validate_every=25)
    made.steps, made.epochs = steps, None
    return made.fit(quiet=True)


@pytest.mark.parametrize("budget", [4_000, pytest.param(12_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("rate", "more"), [(0.1, []), (0.1, [Ema]), (0.3, [Ema])])
def test_a_target_is_reached_soon_whatever_the_budget(
    rate: float, more: list[type[Strategy]], budget: int
) -> None:
    needed = 800
    target = 1.003 * steps_to(None, needed, OneCycle(rate)).metric
    cycles = steps_to(target, budget, Restarts(rate, first=50), *(kind() for kind in more))
    assert cycles.stopped == "target"
    assert cycles.steps <= 4 * needed
    assert steps_to(target, budget, OneCycle(rate)).steps >= 0.75 * budget


# --- going on --------------------------------------------------------------------------------


@pytest.mark.parametrize("at", [3, 7, 8, 14, 21, 22, 35, 49])
def test_it_goes_on_exactly(tmp_path: Path, at: int) -> None:
    def go(folder: Path, **more: Any) -> Any:
        return fit(
            model=model(dropout=0.3),
            valid=ready(24, seed=1),
            strategies=[Restarts(RATE, first=7)],
            epochs=5,
            checkpoint=folder,
            every=0,
            **more,
        )

    whole = go(tmp_path / "whole")
    goes_on_exactly(go, tmp_path / "cut", at, whole)
    assert [row.step for row in whole.history] == [8, 10, 20, 22, 30, 40, 50]


def test_another_pace_after_a_resume_changes_no_cycles(tmp_path: Path) -> None:
    def go(seconds: float, every: float, *callbacks: Any) -> list[float]:
        time, noted = Time(), Noted()
        fit(
            train=Slow(ready(), time, seconds),
            budget=700.0,
            now=time,
            strategies=[Restarts(RATE, first=40)],
            checkpoint=tmp_path,
            every=every,
            callbacks=[noted, *callbacks],
        )
        return noted.rates

    with pytest.raises(KeyboardInterrupt):
        go(1.0, 0, Stop(90))
    # Of the cycles of 47, 93, 187 and 373 seconds the first is over.
    assert len(ends(go(0.25, 1000.0))) == 3


def test_a_roll_back_keeps_the_cycles() -> None:
    time, strategy = Time(), Restarts(RATE, first=40)
    breaks = Breaks(50, math.nan)
    result = fit(
        train=Slow(ready(), time, 1.0),
        budget=700.0,
        now=time,
        strategies=[Divergence(), strategy],
        callbacks=[breaks],
    )
    assert any("back to the weights of step 0" in note for note in result.notes)
    assert strategy.cycles == 4


class Noted:
    """The rate of each step."""

    def __init__(self) -> None:
        self.rates: list[float] = []

    def gradients(self, run: Run) -> None:
        self.rates.append(run.optimizer.param_groups[0]["lr"])


def test_it_brings_adamw() -> None:
    assert isinstance(Restarts().optimizer(model()), torch.optim.AdamW)
