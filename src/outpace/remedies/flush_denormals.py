"""flush_denormals: numbers too small to matter become zero."""

from __future__ import annotations

from dataclasses import replace
from typing import final

from outpace.records.evidence import Evidence
from outpace.records.trial import Settings
from outpace.remedies.base import Remedy, Verdict
from outpace.remedies.edits import insert_after_imports
from outpace.seams.setup import Setup


@final
class FlushDenormals(Remedy):
    """Take numbers below 1e-38 for zero, which CPUs otherwise compute in slow microcode.

    Helps where weights, gradients or activations decay towards zero: an operation on denormal
    numbers may take a hundred times as long. Does nothing where there are none.

    The switch holds for the thread that sets it and for threads that it starts later; those that
    torch has started before keep theirs. Results differ by less than 1e-38, so quality is proven
    rather than assumed.
    """

    name = "flush_denormals"
    treats = ("arithmetic",)
    keeps = "numerics"
    probed = True

    def applies(self, evidence: Evidence) -> Verdict:
        """Denormal numbers must have been seen, on a CPU."""
        compute = evidence.compute
        if compute.device != "cpu":
            return Verdict(False, "the model is not on the CPU")
        if not compute.denormals:
            return Verdict(False, "no denormal numbers were seen in the parameters")
        return Verdict(True, f"up to {100 * compute.denormals:.2g} % of a tensor is denormal")

    def setup(self, base: Setup, settings: Settings) -> Setup:
        """``torch.set_flush_denormal``."""
        return replace(base, flush_denormals=True)

    def edit(self, source: str, evidence: Evidence, settings: Settings) -> str:
        """The switch after the imports."""
        return insert_after_imports(source, "torch.set_flush_denormal(True)")
