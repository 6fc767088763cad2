"""fused_optimizer: one kernel for the whole optimizer step."""

from __future__ import annotations

from dataclasses import replace
from typing import final

from outpace.records.evidence import Evidence
from outpace.records.trial import Settings
from outpace.remedies.base import Remedy, Verdict
from outpace.remedies.edits import names_any, set_optimizer_arguments
from outpace.seams.setup import FOREACH, FUSED, FUSED_ON_CPU, Setup

WORTH = 0.02
"""share of a step that the optimizer must take"""


@final
class FusedOptimizer(Remedy):
    """Update all parameters in one fused kernel instead of several operators for each.

    Where torch has no such kernel for the optimizer, operators that take many tensors at once
    (``foreach``) are the next best.

    Helps where the optimizer's step is a good part of the whole: many parameters, a small batch.
    Harms where the script changes ``param_groups`` between steps in a way of its own.

    The same update; the fused kernels round in another order (on a CPU the last bit of the weights
    differed for all but plain SGD), so quality is proven.
    """

    name = "fused_optimizer"
    treats = ("dispatch", "arithmetic", "bandwidth")
    keeps = "numerics"
    probed = True

    def applies(self, evidence: Evidence) -> Verdict:
        """An optimizer that torch has a fused kernel for, and that costs something."""
        compute = evidence.compute
        optimizer, how = compute.optimizer, self.how(evidence)
        if how is None:
            what = optimizer or "hand-written updates"
            return Verdict(False, f"torch has no fused kernel for {what}")
        if compute.fused or (compute.foreach and how == "foreach"):
            return Verdict(False, f"{optimizer} is fused already")
        if compute.mislaid and how == "fused":
            return Verdict(
                False,
                "the script's gradients lie otherwise in memory than their weights, which fused kernels "
                "go through by address",
            )
        whole = evidence.free_s or evidence.steps.mean_s
        share = compute.optimizer_s / whole if whole else 0.0
        reason = f"{optimizer}'s step over {compute.tensors} tensors is {100 * share:.0f} % of "
        return Verdict(share > WORTH, reason + "the compute of a step")

    def how(self, evidence: Evidence) -> str | None:
        """``fused`` where torch has it, else ``foreach``."""
        optimizer, on_cpu = evidence.compute.optimizer, evidence.compute.device == "cpu"
        if optimizer in FUSED and (on_cpu or optimizer not in FUSED_ON_CPU):
            return "fused"
        return "foreach" if optimizer in FOREACH else None

    def settings(self, evidence: Evidence) -> Settings:
        """Which of torch's implementations."""
        return {"how": self.how(evidence) or "fused"}

    def setup(self, base: Setup, settings: Settings) -> Setup:
        """``fused=True`` or ``foreach=True`` in the optimizer's groups."""
        if settings.get("how") == "foreach":
            return replace(base, fused=None, foreach=True)
        return replace(base, fused=True, foreach=None)

    def edit(self, source: str, evidence: Evidence, settings: Settings) -> str:
        """The same in the optimizer's construction, unless some of its groups are to stay as they are."""
        how = str(settings.get("how", "fused"))
        if how == "fused" and not evidence.compute.fusible:
            return source
        if evidence.compute.optimizer == "SGD" and names_any(source, ("GradScaler",)):
            return source  # whose first step may be left out: momenta are to begin at zero, as in a recipe
        # Torch takes but one of both as True.
        arguments = {how: "True", "foreach" if how == "fused" else "fused": None}
        return set_optimizer_arguments(source, evidence.compute.optimizer, arguments)
