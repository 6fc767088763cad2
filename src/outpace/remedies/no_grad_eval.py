"""no_grad_eval: validation without gradients."""

from __future__ import annotations

from typing import final

from outpace.records.evidence import Evidence
from outpace.records.gain import Gain
from outpace.records.trial import Settings
from outpace.remedies.base import Remedy, Verdict
from outpace.remedies.edits import add_import, decorate
from outpace.remedies.model import gain_without
from outpace.seams.setup import AS_IS, Setup

SAVED = (0.0, 0.15, 0.4)
"""part of validation's time that goes into what gradients need, where it was not tried"""
ERROR = 0.3
"""of what gradients were measured to cost"""


@final
class NoGradEval(Remedy):
    """Validate under ``torch.no_grad()``.

    With gradients on, the forward pass keeps all activations for a backward pass that never comes.
    Without, it takes less memory and some less time.

    Advice: it is one line at the function that validates. Keeps every bit, as long as nothing in
    there asks for gradients.
    """

    name = "no_grad_eval"
    treats = ("validation", "capacity")
    keeps = "exact"
    advice_only = True
    gain_of = "run"

    def applies(self, evidence: Evidence) -> Verdict:
        """The model must have been called in evaluation mode with gradients on."""
        compute = evidence.compute
        if not compute.eval_with_grad:
            return Verdict(False, "no validation with gradients on was seen")
        share, part = evidence.share("validation"), compute.eval_with_grad
        place = f" at {compute.eval_where}" if compute.eval_where else ""
        reason = (
            f"{100 * part:.0f} % of the validation calls{place} keep gradients; validation takes "
            f"{100 * share:.0f} % of the run"
        )
        return Verdict(True, reason)

    def predict(
        self, evidence: Evidence, settings: Settings | None = None, accepted: Setup = AS_IS
    ) -> Gain:
        """A part of validation's time, in the whole run: by the model called again, with and without."""
        share, part = evidence.share("validation"), min(1.0, evidence.compute.eval_with_grad)
        times = evidence.compute.eval_times
        if times is None:
            low, usual, high = (share * part * saved for saved in SAVED)
            return gain_without(usual, low, high)
        beyond = part * max(0.0, times - 1)
        low, usual, high = (
            share * each / (1 + each)
            for each in ((1 - ERROR) * beyond, beyond, (1 + ERROR) * beyond)
        )
        return gain_without(usual, low, high)

    def edit(self, source: str, evidence: Evidence, settings: Settings) -> str:
        """``@torch.no_grad()`` on the function that validates."""
        compute = evidence.compute
        changed = decorate(source, compute.eval_where, "@torch.no_grad()", trains=compute.where)
        return source if changed == source else add_import(changed, "torch")
