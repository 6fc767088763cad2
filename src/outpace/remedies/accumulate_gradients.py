"""accumulate_gradients: a batch in parts."""

from __future__ import annotations

from typing import final

from outpace.records.evidence import Evidence
from outpace.records.finding import Keeps
from outpace.records.gain import Gain
from outpace.records.trial import Settings
from outpace.remedies.base import Remedy, Verdict
from outpace.remedies.checkpoint_activations import FULL, WORTH
from outpace.seams.setup import AS_IS, Setup

PARTS = 2


@final
class AccumulateGradients(Remedy):
    """Split each batch into parts, and add up their gradients before the optimizer's step.

    Activations then take the room of a part, at the same effective batch. Costs time: measured 1.00
    to 1.19 of it for two parts, more for small batches. So it is offered only where memory is full.

    Advice: from outside a script it cannot be known which of its lines belong to a part and which
    to the whole batch (the learning-rate schedule, the logging, the division of the loss). The
    same mathematics where the loss is a mean over samples; batch norms see smaller batches, which
    is another training.
    """

    name = "accumulate_gradients"
    treats = ("capacity",)
    keeps = "numerics"
    advice_only = True

    def applies(self, evidence: Evidence) -> Verdict:
        """Memory must be nearly full, of activations."""
        memory, size = evidence.memory, evidence.steps.batch_size
        if not memory.limit_bytes or not memory.peak_bytes:
            return Verdict(False, "the memory of a step was not measured")
        full = memory.full
        part = memory.by_kind.activations / memory.peak_bytes
        reason = (
            f"a step takes {100 * full:.0f} % of the memory, {100 * part:.0f} % of it activations "
            f"of a batch of {size}"
        )
        return Verdict(full >= FULL and part >= WORTH and size >= PARTS, reason)

    def settings(self, evidence: Evidence) -> Settings:
        """Two parts."""
        return {"parts": PARTS}

    def kept(self, evidence: Evidence, settings: Settings | None = None) -> Keeps:
        """Batch norms see other batches."""
        return "learning" if evidence.compute.batch_norm_training else "numerics"

    def predict(
        self, evidence: Evidence, settings: Settings | None = None, accepted: Setup = AS_IS
    ) -> Gain:
        """The fixed cost of a step comes once more for each further part."""
        step = evidence.free_s or evidence.steps.mean_s
        fixed = min(evidence.compute.fixed_s or 0.05 * step, step) * (PARTS - 1)
        slower = step / (step + fixed) if step else 0.95
        return Gain(slower, 0.9 * slower, max(1.0, slower))
