"""A scaling law fitted to one's own runs: L = E + A / N^a + B / D^b.

For given exponents E, A and B follow by least squares, so that only two are searched (variable
projection, Golub and Pereyra 1973): parabolas through runs of equal compute are biased even without
noise. A Huber loss on log L then polishes all five, as Hoffmann et al. (2022) do; where it begins to count
less follows the noise of the runs.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import numpy as np
from scipy.optimize import least_squares, nnls
from scipy.special import fdtrc

from outpace.errors import UsageError
from outpace.plan.scaling import Parametric
from outpace.records.plan import Estimate, Fit

CONSTANTS = 5
FEWEST = CONSTANTS + 1
"""runs"""
LEAST_LEFT = 0.05
"""of a run's distance from the law that it is taken to leave, where the law goes through it"""
HUBER = 1.345
"""standard deviations from where on a run counts less than by its square: 95 % as efficient as least
squares where the noise is normal (Holland and Welsch 1977)"""
LEAST_NOISE = 1e-3
"""of log L: what Hoffmann et al. take"""
BOUNDS = (0.01, 2.0)
"""of both exponents"""
MOST_TOGETHER = 0.995
"""correlation of log N and log D, above which no law can be told"""
BY_CHANCE = 0.05
"""how probable it may be that losses which depend on nothing are as near to a law"""
EXPONENTS = (0.2, 0.35, 0.5, 0.7)
COLUMNS = {
    "parameters": ("parameters", "params", "n"),
    "tokens": ("tokens", "d"),
    "loss": ("loss", "l"),
}
RESAMPLED = 200
LEVEL = 0.8


@dataclass(frozen=True)
class Runs:
    """Trainings, one row each: parameters, tokens and the loss they ended with."""

    parameters: np.ndarray
    tokens: np.ndarray
    loss: np.ndarray


def read_runs(path: Path) -> Runs:
    """Runs from CSV with columns parameters, tokens and loss. Raises UsageError that names the line."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file)
            rows = [(reader.line_num, row) for row in reader]  # blank lines give none
            header = reader.fieldnames or ()
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UsageError(
            f"{path} cannot be read: {error}", "give a CSV with columns parameters, tokens, loss"
        ) from error
    names = {name.strip().lower(): name for name in header if name}
    found = {}
    for column, spellings in COLUMNS.items():
        spelled = next((names[s] for s in spellings if s in names), None)
        if spelled is None:
            raise UsageError(
                f"{path} has no column {column}", "its columns are to be parameters, tokens, loss"
            )
        found[column] = np.array([_number(path, line, row[spelled]) for line, row in rows])
    runs = Runs(found["parameters"], found["tokens"], found["loss"])
    distinct = [len(set(values.tolist())) for values in (runs.parameters, runs.tokens)]
    pairs = len(set(zip(runs.parameters.tolist(), runs.tokens.tolist(), strict=True)))
    if pairs < FEWEST or min(distinct) < 3:
        raise UsageError(
            f"{path} is not enough for a law: runs {len(rows)}, sizes of models {distinct[0]}, of data "
            f"{distinct[1]}, pairs of both {pairs}",
            f"a law has five constants: give runs of {FEWEST} pairs or more, of 3 sizes and amounts at "
            "least",
        )
    together = float(np.corrcoef(np.log(runs.parameters), np.log(runs.tokens))[0, 1])
    if abs(together) > MOST_TOGETHER:
        more, other = ("more", "ratios") if together > 0 else ("less", "amounts of compute")
        raise UsageError(
            f"{path}: larger models have {more} data throughout (correlation {together:.3f})",
            f"what is due to the one and what to the other cannot be told: add runs with other {other}",
        )
    return runs


def _number(path: Path, line: int, text: str | None) -> float:
    try:
        value = float(text or "")
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise UsageError(
            f"{path}, line {line}: {text!r} is no positive number", "mend the line, or leave it out"
        )
    return value


def fit(runs: Runs, near: Parametric | None = None) -> Parametric:
    """The law nearest to the runs; ``near``: one to begin at, else many are tried."""
    starts = product(EXPONENTS, EXPONENTS) if near is None else [(near.alpha, near.beta)]
    best = min((_projected(runs, start) for start in starts), key=lambda found: found[0])
    return _polished(runs, best[1])


def _linear(runs: Runs, exponents: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """E, A and B for these exponents, and relative errors."""
    alpha, beta = exponents
    terms = np.stack([np.ones_like(runs.loss), runs.parameters**-alpha, runs.tokens**-beta], axis=1)
    scale = terms.max(axis=0)
    found, _ = nnls(terms / scale / runs.loss[:, None], np.ones_like(runs.loss))
    return found / scale, terms @ (found / scale) / runs.loss - 1


def _projected(runs: Runs, start: Sequence[float]) -> tuple[float, np.ndarray]:
    def errors(exponents: np.ndarray) -> np.ndarray:
        return _linear(runs, exponents)[1]

    found = least_squares(errors, start, bounds=BOUNDS, x_scale=0.1)
    constants, _ = _linear(runs, found.x)
    return float(found.cost), np.array([*constants, *found.x])


def _polished(runs: Runs, start: np.ndarray) -> Parametric:
    def errors(point: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore"):  # a step of the search may go too far
            e, a, b = np.exp(point[:3])
        told = e + a * runs.parameters ** -point[3] + b * runs.tokens ** -point[4]
        return np.asarray(np.log(told / runs.loss))

    begin = np.array([*np.log(np.maximum(start[:3], 1e-9)), *start[3:]])
    noise = 1.4826 * float(np.median(np.abs(errors(begin))))
    scale = HUBER * max(LEAST_NOISE, noise)
    low, high = (
        np.array([*3 * [free], *2 * [bound]])
        for free, bound in zip((-np.inf, np.inf), BOUNDS, strict=True)
    )
    begin = np.clip(begin, low + 1e-6, high - 1e-6)
    found = least_squares(
        errors, begin, bounds=(low, high), loss="huber", f_scale=scale, x_scale="jac"
    )
    e, a, b = (float(value) for value in np.exp(found.x[:3]))
    return Parametric("fitted", e, a, b, float(found.x[3]), float(found.x[4]))


def depends(runs: Runs, law: Parametric) -> bool:
    """Whether the losses follow the law beyond chance: an F test of what it leaves of their variance."""
    logs = np.log(runs.loss)
    left = float(np.square(logs - np.log(slopes(law, runs)[0])).sum())
    whole = float(np.square(logs - logs.mean()).sum())
    free = len(logs) - CONSTANTS
    if left <= 0.0:
        return whole > 0.0
    return bool(
        fdtrc(CONSTANTS - 1, free, max(0.0, whole / left - 1) * free / (CONSTANTS - 1)) < BY_CHANCE
    )


def left_out(runs: Runs, law: Parametric) -> str | None:
    """What a fitted law has losses depend on by next to nothing."""
    told, _ = slopes(law, runs)
    parts = {
        "the size of the model": law.a * runs.parameters**-law.alpha,
        "the amount of data": law.b * runs.tokens**-law.beta,
    }
    return next((n for n, part in parts.items() if np.ptp(part) / told.min() < LEAST_NOISE), None)


def slopes(law: Parametric, runs: Runs) -> tuple[np.ndarray, np.ndarray]:
    """Losses by the law, and slopes of their logarithms by log E, log A, log B, alpha and beta: (runs, 5)."""
    of_n, of_d = law.a * runs.parameters**-law.alpha, law.b * runs.tokens**-law.beta
    told = law.e + of_n + of_d
    by_exponents = (-of_n * np.log(runs.parameters), -of_d * np.log(runs.tokens))
    by_constants = np.stack([np.full_like(told, law.e), of_n, of_d, *by_exponents], axis=1)
    return told, by_constants / told[:, None]


def resampled(
    runs: Runs, law: Parametric, seed: int = 0, times: int = RESAMPLED
) -> list[Parametric]:
    """Laws of runs whose losses were drawn anew, each near the law of all.

    What a run is off the law by is drawn from what all are off, each divided by the square root of what
    its leverage leaves of it (Davison and Hinkley 1997, section 6.3), as a law of five constants goes
    nearer to twelve runs than the truth does. How large the noise is, is not known from so few either:
    it is drawn as Student's t has it.
    """
    rng = np.random.default_rng(seed)
    told, by_constants = slopes(law, runs)
    leverage = np.einsum("ij,ji->i", by_constants, np.linalg.pinv(by_constants))
    off = np.log(runs.loss / told) / np.sqrt(np.maximum(1.0 - leverage, LEAST_LEFT))
    off = (off - off.mean()) * math.sqrt(len(off) / (len(off) - 1))
    free = len(off) - CONSTANTS
    laws = []
    for _ in range(times):
        noise = rng.choice(off, len(off)) * math.sqrt(free / rng.chisquare(free))
        laws.append(fit(replace(runs, loss=told * np.exp(noise)), law))
    return laws


def fitted(runs: Runs, laws: Sequence[Parametric], law: Parametric) -> Fit:
    """The constants of a law with the limits that its resampled ones give."""
    names = ("e", "a", "b", "alpha", "beta")
    found = {n: between([getattr(one, n) for one in laws], getattr(law, n)) for n in names}
    return Fit(len(runs.loss), **found)


def between(values: Sequence[float], estimate: float) -> Estimate:
    """A figure with the limits that hold the middle `LEVEL` of its resampled values."""
    low, high = np.quantile(np.asarray(values), [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Estimate(estimate, min(float(low), estimate), max(float(high), estimate))
