"""Scaling laws: published figures, and what must hold of any law."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outpace.errors import UsageError
from outpace.plan.scaling import (
    LAWS,
    Law,
    Parametric,
    judged,
    optimal,
    tokens_worth,
    with_inference,
)

CHINCHILLA = 5.76e23
PARAMETRIC = [law for law in LAWS.values() if isinstance(law, Parametric)]


@pytest.mark.parametrize(
    ("name", "parameters", "tokens"),
    [
        ("besiroglu", 72.2e9, 1.33e12),
        ("hoffmann-1", 67.5e9, 1.42e12),
        ("hoffmann-2", 63e9, 1.52e12),
        ("hoffmann-3", 40.4e9, 2.38e12),
    ],
)
def test_the_published_optima(name: str, parameters: float, tokens: float) -> None:
    best = optimal(LAWS[name], CHINCHILLA)  # type: ignore[index]
    assert best.parameters == pytest.approx(parameters, rel=0.01)
    assert best.tokens == pytest.approx(tokens, rel=0.01)


@given(st.sampled_from(list(LAWS.values())), st.floats(1e15, 1e28))
def test_a_split_spends_all_compute(law: Law, flops: float) -> None:
    best = optimal(law, flops)
    assert 6 * best.parameters * best.tokens == pytest.approx(flops)


@given(st.sampled_from(PARAMETRIC), st.floats(1e17, 1e26), st.floats(1.05, 50.0))
def test_no_other_split_has_less_loss(law: Parametric, flops: float, times: float) -> None:
    best = optimal(law, flops)
    least = law.loss(best.parameters, best.tokens)
    for factor in (times, 1 / times):
        assert law.loss(best.parameters * factor, best.tokens / factor) > least


@given(st.sampled_from(PARAMETRIC), st.floats(1e7, 1e12), st.floats(1e8, 1e13))
def test_what_is_wasted(law: Parametric, parameters: float, tokens: float) -> None:
    """With the compute that is not wasted the best split has the same loss."""
    found = judged(law, parameters, tokens)
    assert found.wasted is not None
    assert 0 <= found.wasted < 1
    best = optimal(law, 6 * parameters * tokens * (1 - found.wasted))
    assert law.loss(best.parameters, best.tokens) == pytest.approx(
        law.loss(parameters, tokens), 1e-6
    )


def test_verdicts() -> None:
    law = LAWS["besiroglu"]
    assert judged(law, 70e9, 1.4e12).verdict == "balanced"
    assert judged(law, 175e9, 300e9).verdict == "compute-inefficient"
    assert judged(law, 8e9, 15e12).verdict == "data-inefficient"
    assert judged(LAWS["hoffmann-1"], 175e9, 300e9).verdict == "compute-inefficient"
    # A hundred epochs are worth 16: it is not for its size that the rest is lost.
    assert judged(law, 5e8, 16.4e9, seen=100e9).verdict == "data-inefficient"
    assert judged(law, 5e9, 16.4e9, seen=100e9).verdict == "compute-inefficient"


def test_repeated_data() -> None:
    """The worth of epochs that Muennighoff et al. give."""
    worth = {epochs: tokens_worth(1.0, epochs) for epochs in (0.5, 1, 2, 4, 16, 1e6)}
    assert worth == pytest.approx(
        {0.5: 0.5, 1: 1.0, 2: 1.97, 4: 3.73, 16: 10.58, 1e6: 16.39}, rel=2e-3
    )


def test_a_model_to_be_served_is_smaller_and_learns_longer() -> None:
    law = LAWS["besiroglu"]
    best = optimal(law, 1e22)
    assert best.loss is not None
    served = with_inference(law, best.loss.estimate, 1e13)
    assert served.loss is not None
    assert served.loss.estimate == pytest.approx(best.loss.estimate)
    assert served.parameters < best.parameters
    assert served.tokens > best.tokens

    def cost(parameters: float, tokens: float) -> float:
        return parameters * (6 * tokens + 2e13)

    assert cost(served.parameters, served.tokens) < cost(best.parameters, best.tokens)
    hardly = with_inference(law, best.loss.estimate, 1.0)
    assert hardly.parameters == pytest.approx(best.parameters, rel=1e-3)


@pytest.mark.parametrize("flops", [0.0, -1.0, math.inf, math.nan])
def test_no_compute(flops: float) -> None:
    with pytest.raises(UsageError):
        optimal(LAWS["besiroglu"], flops)


def test_a_loss_out_of_reach() -> None:
    with pytest.raises(UsageError, match="ends at"):
        with_inference(LAWS["besiroglu"], 1.5, 1e12)
    with pytest.raises(UsageError, match="predicts no loss"):
        with_inference(LAWS["hoffmann-1"], 2.5, 1e12)
