"""A law fitted to runs that follow one."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from outpace.errors import UsageError
from outpace.plan.fit import Runs, depends, fit, fitted, left_out, read_runs, resampled
from outpace.plan.question import Question, chosen
from outpace.plan.scaling import LAWS, Parametric

TRUE = LAWS["besiroglu"]
assert isinstance(TRUE, Parametric)


def runs_of(law: Parametric, noise: float, seed: int = 0) -> Runs:
    """Twelve runs of 1e17 to 1e19 FLOPs, to either side of the best size."""
    rng = np.random.default_rng(seed)
    flops = np.repeat([1e17, 1e18, 1e19], 4)
    n = np.array([law.parameters(c) for c in flops]) * np.tile([0.3, 0.7, 1.5, 3.0], 3)
    d = flops / 6 / n
    exact = np.array([law.loss(*pair) for pair in zip(n, d, strict=True)])
    return Runs(n, d, exact * np.exp(noise * rng.normal(size=12)))


def test_runs_without_noise_give_their_law() -> None:
    found = fit(runs_of(TRUE, 0.0))
    assert (found.e, found.alpha, found.beta) == pytest.approx(
        (TRUE.e, TRUE.alpha, TRUE.beta), rel=1e-3
    )
    assert found.parameters(1e21) == pytest.approx(TRUE.parameters(1e21), rel=1e-3)


def test_noise_and_a_hundredfold_extrapolation() -> None:
    """At 0.5 % of noise nine of ten fits are within 1.2x of the best size."""
    off = [
        abs(math.log(fit(runs_of(TRUE, 0.005, seed)).parameters(1e21) / TRUE.parameters(1e21)))
        for seed in range(24)
    ]
    assert math.exp(np.quantile(off, 0.9)) <= 1.2


def test_losses_that_depend_on_nothing() -> None:
    """One in twenty of them is taken for a law."""
    rng = np.random.default_rng(0)
    runs = [replace(runs_of(TRUE, 0.0), loss=rng.uniform(2, 4, 12)) for _ in range(40)]
    assert sum(depends(each, fit(each)) for each in runs) <= 6
    noisy = [runs_of(TRUE, 0.01, seed) for seed in range(12)]
    assert all(depends(each, fit(each)) for each in noisy)
    constant = replace(runs[0], loss=np.full(12, 3.0))
    assert not depends(constant, fit(constant))


def test_losses_that_depend_on_one_alone_tell_no_split(tmp_path: Path) -> None:
    n, d = (each.ravel() for each in np.meshgrid([1e7, 1e8, 1e9], [1e9, 1e10, 1e11]))
    by_data = Runs(n, d, 2 + 2085 * d**-0.37)
    by_size = Runs(n, d, 2 + 482 * n**-0.35)
    assert left_out(by_data, fit(by_data)) == "the size of the model"
    assert left_out(by_size, fit(by_size)) == "the amount of data"
    assert left_out(runs_of(TRUE, 0.005), fit(runs_of(TRUE, 0.005))) is None
    path = tmp_path / "runs.csv"
    rows = "".join(f"{a:g},{b:g},{c:.6g}\n" for a, b, c in zip(n, d, by_data.loss, strict=True))
    path.write_text("parameters,tokens,loss\n" + rows)
    with pytest.raises(UsageError, match="do not depend on the size of the model"):
        chosen(Question(fit=path, flops=1e21))


def test_limits_hold_the_estimate() -> None:
    runs = runs_of(TRUE, 0.005)
    law = fit(runs)
    found = fitted(runs, resampled(runs, law, times=40), law)
    assert found.runs == 12
    for constant in (found.e, found.a, found.b, found.alpha, found.beta):
        assert constant.low <= constant.estimate <= constant.high
        assert constant.low < constant.high


def test_exponents_stay_within_their_bounds() -> None:
    """Six runs leave one degree of freedom, so that a resampled loss may be far off."""
    runs = runs_of(TRUE, 0.02)
    few = Runs(runs.parameters[:6], runs.tokens[:6], runs.loss[:6])
    law = fit(few)
    for found in (law, *resampled(few, law, times=60)):
        assert min(found.alpha, found.beta) >= 0.01
        assert max(found.alpha, found.beta) <= 2.0
        assert found.parameters(1e21) > 0


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


@pytest.mark.parametrize("mark", ["", "\ufeff"], ids=["plain", "as spreadsheets write it"])
def test_columns_go_by_several_names(tmp_path: Path, mark: str) -> None:
    table = [(1, 1, 4.0), (2, 1, 3.8), (4, 2, 3.5), (8, 2, 3.4), (8, 4, 3.2), (16, 8, 3.0)]
    rows = "".join(f"{loss},{n}e6,{d}e9\n" for n, d, loss in table)
    runs = read_runs(written(tmp_path / "runs.csv", f"{mark}Loss,N,D\n{rows}"))
    assert runs.parameters[3] == 8e6
    assert runs.tokens[5] == 8e9
    assert runs.loss[0] == 4.0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no column parameters"),
        ("parameters,tokens\n1,2\n", "no column loss"),
        ("parameters,tokens,loss\n1e6,1e9,3\n1e6,x,3\n", "line 3: 'x'"),
        ("parameters,tokens,loss\n1e6,1e9,-3\n", "line 2: '-3'"),
        ("parameters,tokens,loss\n1e6,1e9,3\n\n\n1e6,x,3\n", "line 5: 'x'"),
        ("parameters,tokens,loss\n1e6,1e9\n", "line 2: None"),
        ("parameters,tokens,loss\n" + "1e6,1e9,3\n" * 9, "runs 9, sizes of models 1, of data 1"),
        ("parameters,tokens,loss\n", "runs 0, sizes of models 0, of data 0"),
        (
            "parameters,tokens,loss\n" + "1e7,1e9,3.5\n3e7,5e8,3.4\n1e8,4e9,2.9\n" * 2,
            "runs 6, sizes of models 3, of data 3, pairs of both 3",
        ),
        (
            "parameters,tokens,loss\n"
            + "".join(f"{n}e6,{20 * n}e6,{3 - n / 9}\n" for n in range(1, 9)),
            "larger models have more data throughout (correlation 1.000)",
        ),
        (
            "parameters,tokens,loss\n"
            + "".join(f"{n}e6,{1e10 / n},{3 - n / 9}\n" for n in range(1, 9)),
            "larger models have less data throughout (correlation -1.000)",
        ),
    ],
)
def test_files_that_cannot_be_fitted(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(UsageError) as told:
        read_runs(written(tmp_path / "runs.csv", text))
    assert said in told.value.message


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        read_runs(tmp_path / "runs.csv")
