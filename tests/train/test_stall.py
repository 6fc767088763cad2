"""Stalled learning is told from noise: simulated validations."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from outpace.train.stall import learnt, stalled

Floats = NDArray[np.float64]
LENGTH = 120


def stop(values: Floats, **given: float) -> int | None:
    """Validations after which it is told, if it is."""
    costs = values.tolist()
    for count in range(1, len(costs) + 1):
        if stalled(costs[:count], learnt(costs[:count]), **given):  # type: ignore[arg-type]
            return count
    return None


def short(truth: Floats, at: int | None) -> float:
    """What was left to be learnt, of all."""
    return float((truth[: at or len(truth)].min() - truth.min()) / (truth[0] - truth.min()))


@pytest.mark.parametrize("noise", [0.0, 0.01, 0.04])
@pytest.mark.parametrize("seed", range(4))
def test_it_does_not_stop_on_noise_while_there_is_progress(noise: float, seed: int) -> None:
    chance = np.random.default_rng(seed)
    steps = np.arange(LENGTH)
    for truth in (2.0 * np.exp(-steps / 25.0), 2.0 * (1.0 + steps) ** -0.5):
        at = stop(truth + noise * chance.standard_normal(LENGTH))
        assert short(truth, at) < 0.05


@pytest.mark.parametrize("noise", [0.0, 0.01, 0.04])
@pytest.mark.parametrize("seed", range(4))
def test_it_stops_where_nothing_comes_any_more(noise: float, seed: int) -> None:
    chance = np.random.default_rng(seed)
    steps = np.arange(LENGTH)
    truth = 2.0 * np.exp(-steps / 4.0)
    at = stop(truth + noise * chance.standard_normal(LENGTH))
    assert at is not None
    assert 20 <= at <= LENGTH


@pytest.mark.parametrize("seed", range(4))
def test_it_stops_where_it_gets_worse(seed: int) -> None:
    chance = np.random.default_rng(seed)
    steps = np.arange(LENGTH)
    truth = 2.0 * np.exp(-steps / 4.0) + 0.01 * steps
    at = stop(truth + 0.01 * chance.standard_normal(LENGTH))
    assert at is not None
    assert at < 45
    assert short(truth, at) < 0.01


def test_a_plateau_is_told_sooner() -> None:
    chance = np.random.default_rng(0)
    values = 2.0 * np.exp(-np.arange(LENGTH) / 4.0) + 0.01 * chance.standard_normal(LENGTH)
    sooner, later = stop(values, part=3, unseen=0.1), stop(values)
    assert sooner is not None
    assert later is not None
    assert sooner < later


def test_few_odd_or_missing_values_say_nothing() -> None:
    assert stalled([], 0.0) is None
    assert stalled([float("nan")] * 30, 1.0) is None
    falling = (2.0 * np.exp(-np.arange(40) / 20.0)).tolist()
    assert stalled([*falling[:39], 50.0], learnt(falling)) is None
    assert stalled([float("inf"), *falling], learnt(falling)) is None


def test_it_stops_where_nothing_ever_comes() -> None:
    assert stalled([-0.99] * 100, 0.0)
    assert stalled([-0.99] * 99, 0.0) is None
    assert stalled([float("nan")] * 100, 0.0)
    assert stalled([1.0, 0.5, *[float("nan")] * 100], 0.5)
    assert stalled([float("nan")] * 30, 1.0) is None
