"""bf16: mixed precision in the forward pass."""

from __future__ import annotations

from dataclasses import replace
from typing import final

from outpace.records.evidence import Evidence
from outpace.records.trial import Settings
from outpace.remedies.base import Remedy, Verdict
from outpace.remedies.edits import under_autocast
from outpace.seams.setup import Setup

WORTH = 1.15
"""a matrix product must be this much faster in bfloat16 for a trial"""


@final
class Bf16(Remedy):
    """Run the forward pass in bfloat16 under autocast.

    Weights, gradients and the optimizer stay in float32; matrix products and convolutions read
    and write half the bytes and use the machine's bfloat16 units. The model's output is turned
    back into float32, so that a loss outside of the model keeps its range. Validation stays as it is.

    Helps where a step is bound by arithmetic and the machine has such units. Harms where it has
    none (an old CPU emulates bfloat16 slowly). Rounding differs, so quality is proven.
    """

    name = "bf16"
    treats = ("arithmetic", "bandwidth", "capacity")
    keeps = "numerics"
    probed = True

    def applies(self, evidence: Evidence) -> Verdict:
        """The machine must have bfloat16 units and the script not use autocast already."""
        compute = evidence.compute
        if compute.autocast or compute.dtype not in ("float32", "float64"):
            return Verdict(False, f"the model already runs in {compute.dtype} or under autocast")
        if compute.dtype == "float64":
            return Verdict(False, "the model is in float64, which autocast leaves as it is")
        if compute.optimizer == "LBFGS":
            return Verdict(False, "LBFGS compares losses that bfloat16 cannot tell apart")
        if compute.root is None:
            return Verdict(False, "no model was seen")
        rates = evidence.machine.products
        if rates.get("float32") and rates.get("bfloat16"):
            ratio = rates["bfloat16"] / rates["float32"]
            if ratio < WORTH:
                return Verdict(False, f"bfloat16 products run at {ratio:.2f}x of float32 here")
            return Verdict(True, f"bfloat16 products run at {ratio:.1f}x of float32 here")
        return Verdict(True, "half the bytes a matrix product")

    def setup(self, base: Setup, settings: Settings) -> Setup:
        """The root module runs under autocast."""
        return replace(base, autocast="bfloat16")

    def edit(self, source: str, evidence: Evidence, settings: Settings) -> str:
        """The model's call goes under ``torch.autocast``, and what it gives is float32 again."""
        if evidence.compute.models > 1:
            return source  # all of them run in bfloat16 by the recipe
        return under_autocast(source, evidence.compute.where, evidence.compute.device, "bfloat16")
