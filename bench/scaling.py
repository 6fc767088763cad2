"""How well a scaling law is found again: `outpace plan --fit` on runs made from a known law, with noise.

    python bench/scaling.py [--sets 200] [--noise 0.005]

Each set is twelve runs of 1e17 to 1e19 FLOPs. Printed: how far the best size at a hundred times as much
compute is off, nine times of ten, and how often the limits that are to hold it in 80 % of the sets do.
"""

from __future__ import annotations

import argparse
import math

import numpy as np

from outpace.plan.fit import Runs, between, fit, resampled
from outpace.plan.scaling import LAWS, Parametric

FLOPS = np.repeat([1e17, 1e18, 1e19], 4)
SIZES = np.tile([0.3, 0.7, 1.5, 3.0], 3)
"""of the best size for as much compute"""
ASKED = 1e21


def main() -> None:
    """Make the sets, fit them, and count."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", type=int, default=200)
    parser.add_argument("--noise", type=float, default=0.005)
    options = parser.parse_args()
    law = LAWS["besiroglu"]
    assert isinstance(law, Parametric)
    size = law.parameters(ASKED)
    loss = law.loss(size, ASKED / 6 / size)
    off, sizes_held, losses_held = [], 0, 0
    for seed in range(options.sets):
        runs = made(law, options.noise, seed)
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
    print(f"best size within {math.exp(np.quantile(off, 0.9)):.2f}x, nine times of ten")
    print(f"80 % limits held the best size in {100 * sizes_held / options.sets:.0f} %, "
          f"its loss in {100 * losses_held / options.sets:.0f} %")  # fmt: skip


def made(law: Parametric, noise: float, seed: int) -> Runs:
    """Twelve runs to either side of the best size."""
    rng = np.random.default_rng(seed)
    parameters = np.array([law.parameters(flops) for flops in FLOPS]) * SIZES
    tokens = FLOPS / 6 / parameters
    exact = [law.loss(n, d) for n, d in zip(parameters, tokens, strict=True)]
    return Runs(parameters, tokens, exact * np.exp(noise * rng.normal(size=len(FLOPS))))


if __name__ == "__main__":
    main()
