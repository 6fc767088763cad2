"""no_unused_gradients: no gradients for parameters that no optimizer has."""

from __future__ import annotations

from dataclasses import replace
from typing import final

from outpace.records.evidence import Evidence
from outpace.records.trial import Settings
from outpace.remedies.base import Remedy, Verdict
from outpace.seams.setup import Setup


@final
class NoUnusedGradients(Remedy):
    """Compute no gradients for parameters that no optimizer has.

    A teacher that is called without `torch.no_grad()`, or a backbone that was left out of the optimizer and
    not frozen, keeps its graph, and its backward pass is computed for nobody: about twice of what its forward
    pass takes. In the script the cure is `torch.no_grad()` around the call of a model that the trained
    one does not come before, else `requires_grad_(False)`.

    Not where the script looks at gradients itself, as where all are clipped by one norm: then it is no waste.

    The same bits. If they were meant to be learnt from, the
    optimizer is to have them: see the finding about learning.
    """

    name = "no_unused_gradients"
    treats = ("arithmetic",)
    keeps = "exact"
    probed = True

    def applies(self, evidence: Evidence) -> Verdict:
        """There must be some, in one process: ranks that exchange gradients have counted them."""
        compute = evidence.compute
        if not compute.unused:
            return Verdict(False, "an optimizer has all parameters that get gradients")
        if evidence.together:
            return Verdict(False, "ranks may use gradients that no optimizer has")
        if compute.unused_read:
            return Verdict(
                False, "the script looks at gradients itself, maybe at those that no optimizer has"
            )
        return Verdict(True, f"{compute.unused} parameters get gradients that no optimizer uses")

    def setup(self, base: Setup, settings: Settings) -> Setup:
        """They ask for none."""
        return replace(base, no_unused_gradients=True)
