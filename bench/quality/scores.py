"""What runs add up to: times to the target, speed-ups, performance profiles, non-inferiority.

A run that did not reach the target counts as having taken twice its budget (PAR2, as in the SAT
competitions), and is told as not reached; in a profile it never comes.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from scipy import stats

PENALTY = 2.0
MOST = 4.0
"""times the best time up to which a profile is integrated (Dahl et al. 2023, arXiv 2306.07179)"""
CONFIDENCE = 0.95
EARLY = 0.75
"""of the plain script's steps within which the target is reached by the middle one of its seeds"""


class Run(NamedTuple):
    """One contender with one seed. Seconds: to the target, or the penalty."""

    reached: bool
    wall_s: float
    cpu_s: float
    final: float
    """the best within the budget, whose weights a user keeps"""


def run_of(
    aimed: Sequence[Any],
    whole: Sequence[Any],
    target: float,
    budget_s: float,
    *,
    larger: bool,
) -> Run:
    """``aimed`` and ``whole``: curves (wall s, CPU s, step, metric) of a run that aims for the target
    and of one that goes on through the budget; of a contender that does not aim, the same. Raises
    ValueError where no validation was made in time.
    """
    found = first(aimed, target, budget_s, larger=larger)
    inside = [point for point in whole if point[0] <= budget_s]
    if not inside:
        raise ValueError(f"no validation within {budget_s:g} s")
    final = best((point[3] for point in inside), larger=larger)
    if found is not None:
        return Run(True, found[0], found[1], final)
    spent = [point for point in aimed if point[0] <= budget_s] or inside
    return Run(False, PENALTY * budget_s, PENALTY * spent[-1][1], final)


def first(curve: Sequence[Any], target: float, budget_s: float, *, larger: bool) -> Any | None:
    """The first point that reaches the target within the budget."""
    sign = 1 if larger else -1
    return next((p for p in curve if p[0] <= budget_s and sign * p[3] >= sign * target), None)


def best(metrics: Any, *, larger: bool) -> float:
    """Of those that are numbers; the worst there is where none is."""
    known = [metric for metric in metrics if not math.isnan(metric)]
    if not known:
        return -math.inf if larger else math.inf
    return float(max(known) if larger else min(known))


def early(curve: Sequence[Any], steps: int, *, larger: bool) -> float:
    """What a plain script had reached after three quarters of its steps."""
    return best((point[3] for point in curve if point[2] <= EARLY * steps), larger=larger)


def middle(runs: Sequence[Run], what: str = "wall_s") -> float:
    """Median over the seeds, penalties included."""
    return statistics.median(getattr(run, what) for run in runs)


def reached(runs: Sequence[Run]) -> bool:
    """Whether the middle one of the seeds did: half of them or fewer is not enough."""
    return 2 * sum(run.reached for run in runs) > len(runs)


def speedup(base: Sequence[Run], other: Sequence[Run], what: str = "wall_s") -> float:
    """How many times as fast the other is."""
    return middle(base, what) / middle(other, what)


def geometric_mean(ratios: Sequence[float]) -> float:
    """Of positive numbers."""
    return math.exp(math.fsum(map(math.log, ratios)) / len(ratios))


Times = Mapping[str, Mapping[str, float]]
"""of each contender the seconds on each workload; infinite where the target was not reached"""


def ratios(times: Times) -> dict[str, list[float]]:
    """Of each contender its time over the shortest of all, a workload each that some contender
    finished; infinite where it was not run or did not reach the target.
    """
    works = {work for of in times.values() for work, seconds in of.items() if seconds < math.inf}
    shortest = {work: min(of.get(work, math.inf) for of in times.values()) for work in works}
    return {
        name: [of.get(work, math.inf) / shortest[work] for work in sorted(works)]
        for name, of in times.items()
    }


def share_within(found: Sequence[float], factor: float) -> float:
    """The performance profile at one point (Dolan and More 2002): workloads within so many times the
    shortest time.
    """
    return sum(ratio <= factor for ratio in found) / len(found)


def area(found: Sequence[float]) -> float:
    """Under the profile from 1 to `MOST`, as a share of all: AlgoPerf's score."""
    return sum(max(0.0, MOST - ratio) for ratio in found) / (MOST - 1) / len(found)


class Worse(NamedTuple):
    """By how much ours is worse than the other on average, and at most, one-sided at 95 %."""

    mean: float
    most: float


def worse(ours: Sequence[float], other: Sequence[float], *, larger: bool) -> Worse:
    """From finals of the same seeds, in their order; Student's t of their differences."""
    sign = 1 if larger else -1
    by = [sign * (b - a) for a, b in zip(ours, other, strict=True)]
    mean = statistics.fmean(by)
    if len(by) < 2:
        return Worse(mean, math.inf)
    error = statistics.stdev(by) / math.sqrt(len(by))
    return Worse(mean, mean + float(stats.t.ppf(CONFIDENCE, len(by) - 1)) * error)
