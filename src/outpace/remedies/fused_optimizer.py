"""fused_optimizer: one kernel for the whole optimizer step."""

from __future__ import annotations

from dataclasses import replace
from typing import final

from outpace.records.evidence import Evidence
from outpace.records.trial import Settings
from outpace.remedies.base import Remedy, Verdict
from outpace.seams.optimizer import FUSED
from outpace.seams.setup import Setup


@final
class FusedOptimizer(Remedy):
    """Update all parameters in one fused kernel instead of several operators for each.

    The same update; its operations are rounded in another order, so quality is proven.

    Helps where the optimizer's step is a good part of the whole: many small parameters.
    """

    name = "fused_optimizer"
    treats = ("dispatch", "arithmetic", "bandwidth")
    keeps = "numerics"
    probed = True

    def applies(self, evidence: Evidence) -> Verdict:
        """An optimizer that torch has a fused kernel for."""
        compute = evidence.compute
        if compute.optimizer not in FUSED:
            return Verdict(False, f"torch has no fused kernel for {compute.optimizer or 'hand-written updates'}")
        if compute.fused:
            return Verdict(False, "the optimizer is fused already")
        share = compute.optimizer_s / evidence.steps.mean_s if evidence.steps.mean_s else 0.0
        return Verdict(
            share > 0.02, f"{compute.optimizer}'s step over {compute.tensors} tensors is {100 * share:.0f} % of a step"
        )

    def setup(self, base: Setup, settings: Settings) -> Setup:
        """``fused=True`` in the optimizer's groups."""
        return replace(base, fused=True)
