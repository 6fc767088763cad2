"""How many samples a batch needs before its gradient tells more than its noise."""

from __future__ import annotations

import math

import torch


class GradientNoise:
    """The simple noise scale from gradients of a few steps one after another.

    One batch's gradient against their mean, which is that of a batch as large as all together
    (McCandlish et al. 2018, "An Empirical Model of Large-Batch Training", appendix A.1). Weights
    change little meanwhile.
    """

    FEWEST = 4

    def __init__(self) -> None:
        self.steps = 0
        self.squares = 0.0
        self.sums: list[torch.Tensor] = []

    def add(self, gradients: list[torch.Tensor]) -> None:
        """One step's gradient; a step that lacks some of them begins anew."""
        if [g.shape for g in gradients] != [s.shape for s in self.sums]:
            self.steps, self.squares, self.sums = 0, 0.0, [torch.zeros_like(g) for g in gradients]
        self.steps += 1
        for total, gradient in zip(self.sums, gradients, strict=True):
            total.add_(gradient)
        # Added up where they are: reading each would wait for the device.
        self.squares += float(sum(gradient.abs().square().sum() for gradient in gradients))

    def scale(self, batch: int) -> float | None:
        """Samples; at most what so few steps can tell, and None where they are too few."""
        k = self.steps
        if k < self.FEWEST or not batch or not math.isfinite(self.squares) or not self.squares:
            return None
        one = self.squares / k
        all_together = sum(float(s.abs().square().sum()) for s in self.sums) / k**2
        signal = max((k * all_together - one) / (k - 1), one / (4 * k))
        noise = batch * k * max(0.0, one - all_together) / (k - 1)
        return noise / signal
