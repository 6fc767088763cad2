"""Intervals that hold for few, noisy, heavy-tailed timings: gains, shares, slopes.

Everything here is free of randomness, so the same timings always give the same verdict, and
rests on ranks, so that one slow round out of ten does not move it. Only numpy is imported: this runs
inside the user's training process, and the library's `statistics` may there be a file beside the script,
so that the little that is needed of that is here as well.

Intervals are built a little wider than asked (`SPARE`): measured on simulated A/A comparisons,
"no difference" then holds in 95 % of tries even where the caller looks after every round and
stops by `enough`. Honest limits: rounds are taken as independent; the gain is that of the median
round, so a cost that strikes one step in fifty is invisible here and is the ledger's to show.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from outpace.records.gain import Gain

Floats = npt.NDArray[np.float64]

CONFIDENCE = 0.95
"""of an interval, unless another is asked for"""
SPARE = 0.7
"""Share of the allowed misses that an interval uses up; the rest is for looking more than once."""
FEW = 6
"""From this many pairs on, order statistics alone can give a 95 % interval."""
NOISE_FLOOR = 0.02
"""Standard deviation of a log-ratio that is assumed at least where there are fewer than `FEW`."""
ONE_PAIR = 4.0
"""Factor either way that a single pair is trusted to: beyond the 2-3x of a preempted round."""
MOST_BESIDE = 8
"""Degrees of freedom that other comparisons may add: not all are equally noisy."""


class Noise(NamedTuple):
    """What is known of the noise of log-ratios from comparisons beside: variance, degrees of freedom."""

    variance: float
    freedom: int


ALONE = Noise(0.0, 0)


class Line(NamedTuple):
    """A straight line through points, with the limits of its value at zero."""

    slope: float
    intercept: float
    intercept_low: float
    intercept_high: float


def median(values: Iterable[float]) -> float:
    """The middle value, or the mean of the two in the middle; 0 for none."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    if not ordered:
        return 0.0
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def mean(values: Iterable[float]) -> float:
    """Of one or more."""
    found = list(values)
    return math.fsum(found) / len(found)


def stdev(values: Sequence[float]) -> float:
    """The standard deviation of what two or more are a sample of."""
    return float(np.std(values, ddof=1))


def correlation(x: Sequence[float], y: Sequence[float]) -> float:
    """Pearson's; neither may be all the same."""
    return float(np.corrcoef(x, y)[0, 1])


def linear_regression(x: Sequence[float], y: Sequence[float]) -> tuple[float, float]:
    """Slope and intercept by least squares; ``x`` may not be all the same."""
    first, second = np.asarray(x, float), np.asarray(y, float)
    apart = first - first.mean()
    steep = float(apart @ (second - second.mean()) / (apart @ apart))
    return steep, float(second.mean() - steep * first.mean())


def noise_of(comparisons: Sequence[tuple[Sequence[float], Sequence[float]]]) -> Noise:
    """Of pairs of times, pooled over comparisons made in the same rounds."""
    squares, freedom = 0.0, 0
    for base, arm in comparisons:
        ratios = _log_ratios(base, arm)
        if ratios.size > 1:
            squares += float(((ratios - ratios.mean()) ** 2).sum())
            freedom += ratios.size - 1
    return Noise(squares / freedom if freedom else 0.0, freedom)


def paired_gain(
    base: Sequence[float],
    arm: Sequence[float],
    *,
    confidence: float = CONFIDENCE,
    beside: Noise = ALONE,
) -> Gain:
    """Speed-up of ``arm`` over ``base`` from paired times (any unit, the i-th of both one round).

    The estimate is the exponential of the median log-ratio. From six pairs on the interval lies
    between order statistics of the log-ratios, interpolated after Hettmansperger and Sheather
    (1986): it needs no symmetry, as one arm is often noisier than the other. Below six it is
    Student's, around the mean and stretched to hold the median, with at least `NOISE_FLOOR`; its
    variance is taken together with that of comparisons ``beside`` it (the moderated t of Smyth 2004,
    doi 10.2202/1544-6115.1027, whose prior is here theirs, at no more than `MOST_BESIDE`).

    Pairs with a time that is not finite and positive (a clock too coarse) are left out; where none
    is left, nothing is known and the interval says so. Raises ValueError where the lengths differ.
    """
    if len(base) != len(arm):
        raise ValueError(f"{len(base)} base times cannot be paired with {len(arm)} arm times")
    ratios = _log_ratios(base, arm)
    if ratios.size == 0:
        return Gain(1.0, ONE_PAIR**-2, ONE_PAIR**2, "measured")
    middle = float(np.median(ratios))
    miss = SPARE * (1.0 - confidence)
    if ratios.size >= FEW:
        low, high = _median_limits(ratios, miss)
    else:
        low, high = _few_limits(ratios, miss, beside)
    low, high = min(low, middle), max(high, middle)
    return Gain(math.exp(middle), math.exp(low), math.exp(high), "measured")


def enough(gain: Gain, narrow: float = 0.02) -> bool:
    """Whether more rounds are not worth their time: the interval is within ``narrow`` either way,
    or so far from "no gain" that looking early is no luck (1.5 half-widths beyond it).

    Stopping as soon as the interval excludes 1 would call an A/A comparison a gain or a loss in
    26 % of tries over 60 rounds; this rule keeps it at 5 %. Ask from `FEW` rounds on.
    """
    if gain.low <= 0.0:
        return False
    half = math.log(gain.high / gain.low) / 2.0
    beyond = max(math.log(gain.low), -math.log(gain.high))
    return half <= narrow or beyond > 1.5 * half


def slope(
    x: Sequence[float], y: Sequence[float], *, confidence: float = CONFIDENCE
) -> tuple[float, float, float]:
    """Theil-Sen slope of ``y`` over ``x`` with Sen's (1968) interval from Kendall's S.

    The limits are infinite where the points are too few to exclude any slope. Costs n^2: thin out
    beyond some hundreds of points. Raises ValueError where ``x`` does not vary.
    """
    middle, low, high = _theil_sen(np.asarray(x, float), np.asarray(y, float), confidence)
    return middle, low, high


def line(x: Sequence[float], y: Sequence[float]) -> Line:
    """Slope and intercept of ``y`` (times) over ``x`` (positive sizes), that with its interval.

    Noise of times is proportional to them, so the intercept is got as the slope of y/x over 1/x:
    the far end of the sizes, where the noise is large, then weighs little. On simulated timings
    at three batch sizes both intervals cover in 94.5-98.5 % of tries. Raises ValueError where a
    size is not positive or all are equal.
    """
    sizes, times = np.asarray(x, float), np.asarray(y, float)
    if sizes.size == 0 or float(sizes.min()) <= 0.0:
        raise ValueError("sizes must be positive")
    steep = _theil_sen(sizes, times, CONFIDENCE)
    return Line(steep[0], *_theil_sen(1.0 / sizes, times / sizes, CONFIDENCE))


def _log_ratios(base: Sequence[float], arm: Sequence[float]) -> Floats:
    """Sorted logarithms of base over arm, of the pairs that are usable."""
    first, second = np.asarray(base, float), np.asarray(arm, float)
    usable = np.isfinite(first) & np.isfinite(second) & (first > 0.0) & (second > 0.0)
    return np.sort(np.log(first[usable]) - np.log(second[usable]))


def _median_limits(ordered: Floats, miss: float) -> tuple[float, float]:
    """Distribution-free limits of the median of ``ordered`` (six or more) for a risk ``miss``."""
    count = ordered.size
    cut, outer, inner = _binomial_cut(count, miss)
    if cut == 0:
        return float(ordered[0]), float(ordered[-1])
    inward = 0.0
    if cut < count - cut and outer > inner:
        part = (outer - (1.0 - miss)) / (outer - inner)
        inward = (count - cut) * part / (cut + (count - 2 * cut) * part)
    low = (1.0 - inward) * ordered[cut - 1] + inward * ordered[cut]
    high = (1.0 - inward) * ordered[count - cut] + inward * ordered[count - cut - 1]
    return float(low), float(high)


def _binomial_cut(count: int, miss: float) -> tuple[int, float, float]:
    """Largest cut whose order statistics still cover, their cover, and that of the next cut in."""
    below, cut = 0.0, 0
    while True:
        weight = math.exp(log_choose(count, cut) - count * math.log(2.0))
        if 2.0 * (below + weight) > miss:
            return cut, 1.0 - 2.0 * below, 1.0 - 2.0 * (below + weight)
        below += weight
        cut += 1


def log_choose(count: int, chosen: int) -> float:
    """The logarithm of how many ways there are to choose so many of a count."""
    return math.lgamma(count + 1) - math.lgamma(chosen + 1) - math.lgamma(count - chosen + 1)


def _few_limits(ratios: Floats, miss: float, beside: Noise) -> tuple[float, float]:
    """Student's limits for one to five log-ratios; a fixed wide range for one that is alone."""
    middle, prior = float(ratios.mean()), min(beside.freedom, MOST_BESIDE)
    freedom = ratios.size - 1 + prior
    if freedom == 0:
        return middle - math.log(ONE_PAIR), middle + math.log(ONE_PAIR)
    squares = float(((ratios - middle) ** 2).sum()) + prior * beside.variance
    spread = max(math.sqrt(squares / freedom), NOISE_FLOOR)
    half = student_quantile(freedom, miss) * spread / math.sqrt(ratios.size)
    return middle - half, middle + half


def _theil_sen(x: Floats, y: Floats, confidence: float) -> tuple[float, float, float]:
    count = x.size
    first, second = np.triu_indices(count, 1)
    run = x[second] - x[first]
    if not run.any():
        raise ValueError(f"a slope needs two different x, got {np.unique(x).tolist()}")
    apart = run != 0.0
    slopes = np.sort((y[second] - y[first])[apart] / run[apart])
    tied = np.unique(x, return_counts=True)[1].astype(float)
    variance = count * (count - 1) * (2 * count + 5) - (tied * (tied - 1) * (2 * tied + 5)).sum()
    reach = _normal_quantile(SPARE * (1.0 - confidence)) * math.sqrt(float(variance) / 18.0)
    lower, upper = round((slopes.size - reach) / 2) - 1, round((slopes.size + reach) / 2)
    return (
        float(np.median(slopes)),
        float(slopes[lower]) if lower >= 0 else -math.inf,
        float(slopes[upper]) if upper < slopes.size else math.inf,
    )


def _normal_quantile(miss: float) -> float:
    """The z that a standard normal exceeds in absolute value with probability ``miss``."""
    return _solve(lambda z: math.erfc(z / math.sqrt(2.0)), miss, 40.0)


def student_quantile(freedom: int, miss: float) -> float:
    """The quantile that Student's t exceeds in absolute value with probability ``miss``.

    Abramowitz and Stegun 26.7.3-4.
    """

    def inside(angle: float) -> float:
        odd = freedom % 2
        term = 2.0 * math.cos(angle) / math.pi if odd else 1.0
        total = 0.0
        for i in range(freedom // 2):
            total += term
            term *= math.cos(angle) ** 2 * (2 * i + 1 + odd) / (2 * i + 2 + odd)
        return math.sin(angle) * total + (2.0 * angle / math.pi if odd else 0.0)

    angle = _solve(lambda a: 1.0 - inside(a), miss, math.pi / 2.0)
    return math.sqrt(freedom) * math.tan(angle)


def _solve(falling: Callable[[float], float], target: float, high: float) -> float:
    """Where a falling function takes a value, by bisection from zero to ``high``."""
    low = 0.0
    for _ in range(80):
        middle = (low + high) / 2.0
        low, high = (middle, high) if falling(middle) > target else (low, middle)
    return (low + high) / 2.0
