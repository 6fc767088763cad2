"""How well a scaling law is found again: `outpace plan --fit` on runs made from a known law, with noise.

    python bench/scaling.py [--sets 200] [--noise 0.005] [--spread 8]

Each set is twelve runs of 1e17 to 1e19 FLOPs, four of each, of sizes up to ``spread`` times the best and
down to as small a part of it. Printed: how far the best size at a hundred times as much compute is off,
nine times of ten, how far it would be by the best that such runs can tell (Cramer and Rao's bound), and
how often the limits that are to hold it in 80 % of the sets do.
"""

from __future__ import annotations

import argparse
import math

import numpy as np

from outpace.plan.fit import Runs, between, fit, resampled, slopes
from outpace.plan.scaling import LAWS, Parametric

FLOPS = np.repeat([1e17, 1e18, 1e19], 4)
ASKED = 1e21
NORMAL_90 = 1.645


def main() -> None:
    """Make the sets, fit them, and count."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", type=int, default=200)
    parser.add_argument("--noise", type=float, default=0.005)
    parser.add_argument("--spread", type=float, default=8.0)
    options = parser.parse_args()
    law = LAWS["besiroglu"]
    assert isinstance(law, Parametric)
    size = law.parameters(ASKED)
    loss = law.loss(size, ASKED / 6 / size)
    off, sizes_held, losses_held = [], 0, 0
    for seed in range(options.sets):
        runs = made(law, options.noise, options.spread, seed)
        found = fit(runs)
        off.append(abs(math.log(found.parameters(ASKED) / size)))
        several = resampled(runs, found, seed)
        sizes = between([one.parameters(ASKED) for one in several], found.parameters(ASKED))
        told = [one.loss(size, ASKED / 6 / size) for one in several]
        losses = between(told, found.loss(size, ASKED / 6 / size))
        sizes_held += sizes.low <= size <= sizes.high
        losses_held += losses.low <= loss <= losses.high
    print(f"{options.sets} sets of {len(FLOPS)} runs with {100 * options.noise:g} % of noise, "
          f"asked for {ASKED:g} FLOPs")  # fmt: skip
    bound = math.exp(NORMAL_90 * options.noise * deviation(law, made(law, 0.0, options.spread, 0)))
    print(f"best size within {math.exp(np.quantile(off, 0.9)):.2f}x, nine times of ten "
          f"(such runs tell it to {bound:.2f}x at best)")  # fmt: skip
    print(f"80 % limits held the best size in {100 * sizes_held / options.sets:.0f} %, "
          f"its loss in {100 * losses_held / options.sets:.0f} %")  # fmt: skip


def made(law: Parametric, noise: float, spread: float, seed: int) -> Runs:
    """Twelve runs to either side of the best size."""
    rng = np.random.default_rng(seed)
    sizes = np.tile(np.geomspace(1 / spread, spread, 4), 3)
    parameters = np.array([law.parameters(flops) for flops in FLOPS]) * sizes
    tokens = FLOPS / 6 / parameters
    exact = [law.loss(n, d) for n, d in zip(parameters, tokens, strict=True)]
    return Runs(parameters, tokens, exact * np.exp(noise * rng.normal(size=len(FLOPS))))


def deviation(law: Parametric, runs: Runs) -> float:
    """Of the logarithm of the best size by any fit without bias, over the noise of log L."""
    _, by_constants = slopes(law, runs)
    # N = (alpha A / (beta B)) ^ (1 / s) (C / 6) ^ (beta / s), s = alpha + beta
    s = law.alpha + law.beta
    at = math.log(ASKED / 6)
    ratio = math.log(law.alpha * law.a / (law.beta * law.b))
    of_alpha = 1 / law.alpha / s - ratio / s**2 - law.beta * at / s**2
    of_beta = -1 / law.beta / s - ratio / s**2 + law.alpha * at / s**2
    slope = np.array([0.0, 1 / s, -1 / s, of_alpha, of_beta])
    return math.sqrt(slope @ np.linalg.inv(by_constants.T @ by_constants) @ slope)


if __name__ == "__main__":
    main()
