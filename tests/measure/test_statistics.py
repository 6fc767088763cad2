"""Intervals hold on the noise of shared machines, and say the same whichever way they are asked."""

from __future__ import annotations

import math
import statistics as library
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outpace.measure import statistics
from outpace.measure.statistics import (
    correlation,
    enough,
    line,
    linear_regression,
    mean,
    median,
    noise_of,
    paired_gain,
    slope,
    stdev,
)
from outpace.records.gain import NO_GAIN, Gain

TRIES = 4000


def noise(rng: np.random.Generator, tries: int, pairs: int) -> np.ndarray:
    """Times of one arm: sd 5.7 % (8 % for a ratio of two), 2-3 times as long in 5 % of rounds."""
    usual = rng.normal(0.0, 0.08 / math.sqrt(2.0), (tries, pairs))
    preempted = rng.random((tries, pairs)) < 0.05
    return np.exp(usual + preempted * np.log(rng.uniform(2.0, 3.0, (tries, pairs))))


def limits(base: np.ndarray, arm: np.ndarray) -> np.ndarray:
    return np.array([(g.low, g.high) for g in map(paired_gain, base, arm)])


@pytest.mark.parametrize("pairs", [3, 5, 6, 8, 11, 21])
def test_the_same_arm_twice_reads_as_no_difference(pairs: int) -> None:
    rng = np.random.default_rng(pairs)
    found = limits(noise(rng, TRIES, pairs), noise(rng, TRIES, pairs))
    covered = np.mean((found[:, 0] <= 1.0) & (found[:, 1] >= 1.0))
    assert covered >= 0.95 - 2 * math.sqrt(0.05 * 0.95 / TRIES)


@pytest.mark.parametrize("pairs", [6, 11, 21, 51])
def test_an_arm_that_is_noisier_and_skewed_is_covered_all_the_same(pairs: int) -> None:
    rng = np.random.default_rng(pairs)
    skewed = rng.gamma(1.5, 0.06, (TRIES, pairs))
    skewed -= np.median(rng.gamma(1.5, 0.06, 400_000))
    found = limits(np.exp(skewed + math.log(1.3)), np.ones((TRIES, pairs)))
    covered = np.mean((found[:, 0] <= 1.3) & (found[:, 1] >= 1.3))
    assert covered >= 0.95 - 2 * math.sqrt(0.05 * 0.95 / TRIES)


def test_looking_after_every_round_does_not_make_a_difference_of_noise() -> None:
    rng = np.random.default_rng(0)
    tries, wrong = 400, 0
    for base, arm in zip(noise(rng, tries, 41), noise(rng, tries, 41), strict=True):
        gain = NO_GAIN
        for rounds in range(6, 42, 2):
            gain = paired_gain(base[:rounds], arm[:rounds])
            if enough(gain):
                break
        wrong += gain.is_gain or gain.is_harm
    assert wrong / tries <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / tries)


def test_a_real_gain_is_found() -> None:
    rng = np.random.default_rng(1)
    found = limits(1.2 * noise(rng, 500, 21), noise(rng, 500, 21))
    assert np.mean(found[:, 0] > 1.0) > 0.95
    assert np.median(found[:, 1] / found[:, 0]) < 1.2


TIMES = st.lists(st.tuples(st.floats(1e-3, 1e3), st.floats(1e-3, 1e3)), min_size=1, max_size=40)


@given(TIMES)
def test_swapping_the_arms_inverts_the_gain(pairs: list[tuple[float, float]]) -> None:
    gain = paired_gain([b for b, _ in pairs], [a for _, a in pairs])
    other = paired_gain([a for _, a in pairs], [b for b, _ in pairs])
    assert other.speedup == pytest.approx(1 / gain.speedup)
    assert (other.low, other.high) == pytest.approx((1 / gain.high, 1 / gain.low))


@given(TIMES, st.floats(1e-3, 1e3))
def test_the_unit_of_time_does_not_matter(pairs: list[tuple[float, float]], unit: float) -> None:
    gain = paired_gain([b for b, _ in pairs], [a for _, a in pairs])
    scaled = paired_gain([b * unit for b, _ in pairs], [a * unit for _, a in pairs])
    assert (scaled.speedup, scaled.low, scaled.high) == pytest.approx(
        (gain.speedup, gain.low, gain.high)
    )


@given(TIMES, st.randoms())
def test_the_order_of_rounds_does_not_matter(pairs: list[tuple[float, float]], random) -> None:
    mixed = random.sample(pairs, len(pairs))
    gain = paired_gain([b for b, _ in pairs], [a for _, a in pairs])
    again = paired_gain([b for b, _ in mixed], [a for _, a in mixed])
    assert (again.speedup, again.low, again.high) == pytest.approx(
        (gain.speedup, gain.low, gain.high)
    )


@given(TIMES)
def test_the_estimate_lies_in_its_interval(pairs: list[tuple[float, float]]) -> None:
    gain = paired_gain([b for b, _ in pairs], [a for _, a in pairs])
    assert gain.low <= gain.speedup <= gain.high


def test_few_pairs_say_little() -> None:
    assert paired_gain([1.0], [2.0]) == Gain(
        0.5, pytest.approx(0.125), pytest.approx(2.0), "measured"
    )
    two = paired_gain([1.0, 1.0], [0.98, 0.98])
    assert two.low < 1.0 < two.high
    nothing = paired_gain([], [])
    assert nothing.low < 0.1
    assert nothing.high > 10.0


def test_few_pairs_say_more_beside_others_as_noisy() -> None:
    """Two rounds of five arms: intervals hold the truth as often, and are far narrower."""
    rng = np.random.default_rng(0)
    held, widths, alone, tries = 0, [], [], 600
    for base, arm in zip(noise(rng, 5 * tries, 2).reshape(-1, 5, 2),
                         noise(rng, 5 * tries, 2).reshape(-1, 5, 2), strict=True):  # fmt: skip
        beside = noise_of(list(zip(base[1:], arm[1:], strict=True)))
        gain, one = paired_gain(base[0], arm[0], beside=beside), paired_gain(base[0], arm[0])
        held += gain.low <= 1.0 <= gain.high
        widths.append(math.log(gain.high / gain.low))
        alone.append(math.log(one.high / one.low))
    assert held >= 0.95 * tries - 2 * math.sqrt(0.95 * 0.05 * tries)
    assert np.mean(widths) < 0.5 * np.mean(alone)


def test_one_pair_is_as_noisy_as_those_beside() -> None:
    quiet = noise_of([([1.0, 1.0], [1.01, 0.99]), ([1.0, 1.0], [1.0, 1.02])])
    assert paired_gain([2.0], [1.0], beside=quiet).is_gain
    assert not paired_gain([2.0], [1.0]).is_gain
    assert noise_of([([1.0], [2.0])]).freedom == 0


def test_times_that_a_coarse_clock_gives_are_left_out() -> None:
    kept = paired_gain([1.0, 2.0, 0.0, math.nan], [1.0, 2.0, 1.0, 1.0])
    assert kept == paired_gain([1.0, 2.0], [1.0, 2.0])
    with pytest.raises(ValueError, match="cannot be paired"):
        paired_gain([1.0], [1.0, 2.0])


@pytest.mark.parametrize(
    ("gain", "expected"),
    [
        (Gain(1.0, 0.99, 1.01), True),
        (Gain(1.0, 0.9, 1.1), False),
        (Gain(1.1, 1.01, 1.2), False),
        (Gain(2.0, 1.8, 2.2), True),
        (Gain(0.5, 0.45, 0.55), True),
    ],
)
def test_enough_is_narrow_or_decisive(gain: Gain, expected: bool) -> None:
    assert enough(gain) is expected


def test_a_wider_confidence_is_a_wider_interval() -> None:
    rng = np.random.default_rng(2)
    base, arm = noise(rng, 1, 30)[0], noise(rng, 1, 30)[0]
    narrow, wide = (paired_gain(base, arm, confidence=c) for c in (0.8, 0.99))
    assert wide.low < narrow.low < narrow.high < wide.high


def test_slope_shrugs_off_outliers() -> None:
    x = list(range(20))
    y = [3.0 * one + 1.0 for one in x]
    y[7] = 1000.0
    middle, low, high = slope(x, y)
    assert middle == pytest.approx(3.0)
    assert low <= 3.0 <= high
    with pytest.raises(ValueError, match="two different x"):
        slope([1.0, 1.0], [1.0, 2.0])


def test_three_points_exclude_no_slope() -> None:
    assert slope([1.0, 2.0, 3.0], [1.0, 2.0, 3.0])[1:] == (-math.inf, math.inf)


def test_line_covers_fixed_cost_and_cost_a_sample() -> None:
    rng = np.random.default_rng(3)
    sizes = np.tile([16.0, 32.0, 64.0], 6)
    tries, covered = 300, 0
    for _ in range(tries):
        fit = line(sizes, (32.0 + sizes) * noise(rng, 1, sizes.size)[0])
        covered += fit.intercept_low <= 32.0 <= fit.intercept_high
    assert covered / tries >= 0.9


def test_line_refuses_sizes_that_are_none() -> None:
    with pytest.raises(ValueError, match="positive"):
        line([0.0, 1.0], [1.0, 2.0])


def test_scipy_stays_out_of_the_users_process() -> None:
    assert "scipy" not in Path(statistics.__file__).read_text(encoding="utf-8")


@pytest.mark.parametrize("count", [2, 3, 10, 31])
def test_the_usual_figures_are_as_the_library_has_them(count: int) -> None:
    maker = np.random.default_rng(count)
    x, y = maker.normal(5.0, 1.0, count).tolist(), maker.normal(-2.0, 0.1, count).tolist()
    assert median(iter(x)) == library.median(x)
    assert mean(iter(x)) == pytest.approx(library.mean(x))
    assert stdev(x) == pytest.approx(library.stdev(x))
    assert correlation(x, y) == pytest.approx(library.correlation(x, y))
    assert linear_regression(x, y) == pytest.approx(tuple(library.linear_regression(x, y)))
    assert median([]) == 0.0
