"""set_to_none: gradients are dropped instead of filled with zeros."""

from __future__ import annotations

from dataclasses import replace
from typing import final

from outpace.records.evidence import Evidence
from outpace.records.trial import Settings
from outpace.remedies.base import Remedy, Verdict
from outpace.remedies.edits import gradients_to_none
from outpace.seams.setup import Setup


@final
class SetToNone(Remedy):
    """Drop gradients in ``zero_grad`` instead of filling them with zeros.

    Saves writing zeros and adding to them. It is torch's default; this is for scripts that ask for
    ``set_to_none=False``. Not for scripts that look at gradients themselves, of which some may be None then.

    The same mathematics where every parameter gets a gradient in every step. One that gets none is
    then left alone by the optimizer, while a gradient of zeros still moves it by momentum and
    weight decay, so quality is proven.
    """

    name = "set_to_none"
    treats = ("dispatch", "bandwidth")
    keeps = "numerics"
    probed = True

    def applies(self, evidence: Evidence) -> Verdict:
        """The script must ask for zeros."""
        if evidence.compute.set_to_none:
            return Verdict(False, "gradients are dropped already, which is torch's default")
        if evidence.compute.gradients_read:
            return Verdict(False, "the script looks at gradients itself, and would find none")
        tensors = evidence.compute.tensors
        return Verdict(True, f"the gradients of {tensors} tensors are filled with zeros each step")

    def setup(self, base: Setup, settings: Settings) -> Setup:
        """``zero_grad(set_to_none=True)``, whatever the script asks for."""
        return replace(base, set_to_none=True)

    def edit(self, source: str, evidence: Evidence, settings: Settings) -> str:
        """The script no longer asks for zeros."""
        return gradients_to_none(source)
