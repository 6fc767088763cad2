"""float32: the script's own mixed precision off."""

from __future__ import annotations

from dataclasses import replace
from typing import final

from outpace.records.evidence import Evidence
from outpace.records.trial import Settings
from outpace.remedies.base import Remedy, Verdict
from outpace.seams.setup import Setup


@final
class Float32(Remedy):
    """Run the forward pass in float32 where the script has it under autocast.

    Half precision pays where there are units for it and a kernel that uses them. On CPUs some operators
    have none: a convolution with strides may take ten times as long in bfloat16, forward or backward.

    Numbers are rounded less, so that they differ, and quality is proven. In the script it is
    ``torch.autocast(..., enabled=False)``; a trainer's ``precision`` or ``bf16`` option.
    """

    name = "float32"
    treats = ("arithmetic", "bandwidth")
    keeps = "numerics"
    probed = True

    def applies(self, evidence: Evidence) -> Verdict:
        """A model with weights in float32 must run under the script's autocast, on a CPU."""
        compute = evidence.compute
        if not compute.autocast or compute.dtype != "float32":
            return Verdict(False, "the script has no autocast of its own")
        if compute.device != "cpu":
            return Verdict(False, f"half precision has kernels of its own on {compute.device}")
        return Verdict(True, f"the script runs its model in {compute.autocast}, under autocast")

    def setup(self, base: Setup, settings: Settings) -> Setup:
        """The root module's call turns autocast off."""
        return base if base.autocast else replace(base, autocast="float32")
