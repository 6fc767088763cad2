"""Scaling laws: how large a model, and how much data, for so much compute.

All take a training to cost C = 6 N D FLOPs for N parameters and D tokens (Kaplan et al. 2020). The
parametric laws give a loss L = E + A / N^a + B / D^b, and so the split that makes it least. A law
was fitted to models of one kind on one kind of data: others have other constants, which
`outpace.plan.fit` finds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from scipy.optimize import brentq, minimize_scalar

from outpace.errors import UsageError
from outpace.records.plan import Estimate, Given, LawName, Optimal

PER_PARAMETER_AND_TOKEN = 6.0
"""FLOPs, forward and backward"""
BALANCED = 0.02
"""share of the compute below which a split is as good as the best"""
EPOCHS_WORTH = 15.387756
"""R_D* of Muennighoff et al. 2023 (arXiv 2305.16264), from the authors' repository"""


@dataclass(frozen=True)
class Parametric:
    """L = E + A / N^a + B / D^b; ``e_low``, ``e_high``: the published interval of E."""

    source: str
    e: float
    a: float
    b: float
    alpha: float
    beta: float
    e_low: float | None = None
    e_high: float | None = None

    def loss(self, parameters: float, tokens: float) -> float:
        """Nats a token."""
        return float(self.e + self.a / parameters**self.alpha + self.b / tokens**self.beta)

    def tokens_for(self, loss: float, parameters: float) -> float:
        """Tokens that a model needs for a loss; infinitely many where it is too small."""
        left = loss - self.e - self.a / parameters**self.alpha
        return float((self.b / left) ** (1 / self.beta)) if left > 0 else math.inf

    def parameters(self, flops: float) -> float:
        """Of the model that has the least loss for so much compute (Hoffmann et al., eq. 4)."""
        together = self.alpha + self.beta
        g = (self.alpha * self.a / (self.beta * self.b)) ** (1 / together)
        return float(g * (flops / PER_PARAMETER_AND_TOKEN) ** (self.beta / together))


@dataclass(frozen=True)
class Power:
    """N = k C^p, without a loss."""

    source: str
    k: float
    p: float

    def parameters(self, flops: float) -> float:
        """Of the model that has the least loss for so much compute."""
        return float(self.k * flops**self.p)


Law = Parametric | Power

LAWS: dict[LawName, Law] = {
    "besiroglu": Parametric(
        "Besiroglu et al. 2024, arXiv 2404.10102: a replication of Hoffmann's third approach",
        *(1.8172, 482.01, 2085.43, 0.3478, 0.3658),
        e_low=1.769,
        e_high=1.871,
    ),
    "hoffmann-1": Power(
        "Hoffmann et al. 2022, arXiv 2203.15556, approach 1: least loss over training curves",
        *(0.0992, 0.498),
    ),
    "hoffmann-2": Power(
        "Hoffmann et al. 2022, approach 2: parabolas of equal compute; through their 63 billion at "
        "5.76e23 FLOPs with their exponent 0.49",
        *(63e9 / 5.76e23**0.49, 0.49),
    ),
    "hoffmann-3": Parametric(
        "Hoffmann et al. 2022, approach 3, with the constants before the paper rounded them",
        *(math.exp(0.5267228), math.exp(6.0073404), math.exp(6.0179186)),
        *(0.33917084, 0.2849083),
    ),
}


def optimal(law: Law, flops: float) -> Optimal:
    """The split of a compute budget. Raises UsageError where there is nothing to split."""
    if not flops > 0 or not math.isfinite(flops):
        raise UsageError(f"{flops:g} FLOPs train nothing", "name a number such as 5.76e23")
    parameters = law.parameters(flops)
    tokens = flops / (PER_PARAMETER_AND_TOKEN * parameters)
    return Optimal(parameters, tokens, expected_loss(law, parameters, tokens))


def expected_loss(law: Law, parameters: float, tokens: float) -> Estimate | None:
    """Nats a token; limits from the published interval of E alone, where there is one."""
    if not isinstance(law, Parametric):
        return None
    loss = law.loss(parameters, tokens)
    if law.e_low is None or law.e_high is None:
        return Estimate(loss, loss, loss)
    return Estimate(loss, loss - law.e + law.e_low, loss - law.e + law.e_high)


def judged(law: Law, parameters: float, tokens: float, seen: float | None = None) -> Given:
    """A model and data against the law's best of the same loss, and what that would save.

    A model too large for its data wastes compute; one too small for its data wastes data. ``seen``:
    tokens that are paid for, where some are seen again and are worth ``tokens`` fresh ones.
    """
    for name, value in (("parameters", parameters), ("tokens", tokens)):
        if not value > 0 or not math.isfinite(value):
            raise UsageError(f"{value:g} {name} make no training", "name a number such as 70B")
    flops = PER_PARAMETER_AND_TOKEN * parameters * (seen or tokens)
    best = optimal(law, PER_PARAMETER_AND_TOKEN * parameters * tokens)
    wasted = _wasted(law, parameters, tokens, flops)
    near = wasted < BALANCED if wasted is not None else abs(math.log(tokens / best.tokens)) < 0.1
    if near:
        verdict = "balanced"
    else:
        verdict = "compute-inefficient" if tokens < best.tokens else "data-inefficient"
    loss = expected_loss(law, parameters, tokens)
    return Given(parameters, seen or tokens, tokens, loss, verdict, wasted)  # type: ignore[arg-type]


def _wasted(law: Law, parameters: float, tokens: float, flops: float) -> float | None:
    if not isinstance(law, Parametric):
        return None
    wanted = law.loss(parameters, tokens)
    spent = math.log(flops)

    def above(log_flops: float) -> float:
        best = optimal(law, math.exp(log_flops))
        return law.loss(best.parameters, best.tokens) - wanted

    # The best of the same compute is never worse; that of a millionth is, but for rounding.
    least = spent - math.log(1e6)
    if above(spent) >= 0:
        return 0.0
    if above(least) <= 0:
        return 1.0
    return float(1 - math.exp(brentq(above, least, spent) - spent))


def tokens_worth(unique: float, epochs: float) -> float:
    """Tokens of fresh data that so many epochs over ``unique`` tokens are worth.

    D' = U + U R (1 - exp(-(epochs - 1) / R)): Muennighoff et al. 2023, equation 5.
    """
    if epochs <= 1:
        return unique * epochs
    return unique * (1 + EPOCHS_WORTH * (1 - math.exp(-(epochs - 1) / EPOCHS_WORTH)))


def with_inference(law: Law, loss: float, served_tokens: float) -> Optimal:
    """The model of this loss for which training and serving together cost least.

    6 N D + 2 N served, at equal loss (Sardana et al. 2023, arXiv 2401.00448). Raises UsageError where
    the law has no loss, or the loss is out of its reach.
    """
    if not isinstance(law, Parametric):
        raise UsageError("this law predicts no loss", "choose besiroglu or hoffmann-3")
    if not loss > law.e:
        raise UsageError(f"no model has a loss of {loss:g}: the law ends at {law.e:.3f}")

    def tokens(parameters: float) -> float:
        return law.tokens_for(loss, parameters)

    def cost(log_parameters: float) -> float:
        n = math.exp(log_parameters)
        return math.log(n * (PER_PARAMETER_AND_TOKEN * tokens(n) + 2 * served_tokens))

    smallest = math.log((law.a / (loss - law.e)) ** (1 / law.alpha)) + 1e-6
    bounds = (smallest, smallest + math.log(1e6))
    found = minimize_scalar(cost, bounds=bounds, method="bounded", options={"xatol": 1e-9})
    best = math.exp(float(found.x))
    return Optimal(best, tokens(best), expected_loss(law, best, tokens(best)))
