"""checkpoint_activations: activations are computed again instead of kept."""

from __future__ import annotations

from dataclasses import replace
from typing import final

from outpace.records.evidence import Evidence
from outpace.records.gain import Gain
from outpace.records.trial import Settings
from outpace.remedies.base import Remedy, Verdict
from outpace.seams.setup import AS_IS, Setup

FULL = 0.8
"""share of the memory from which a training is taken to be bound by it"""
WORTH = 0.3
"""share of the peak that activations must take"""


@final
class CheckpointActivations(Remedy):
    """Keep only the inputs of the model's repeated blocks; compute the rest again.

    Helps where memory is full: the room can go into a larger batch. Costs another forward pass:
    measured on a GPT, 0.42 of the memory at 1.27 of the time. So it is never applied for speed, and
    offered only where a step takes most of the memory.

    Keeps every bit: random numbers are drawn again as they were, and buffers that a forward pass moves, as
    the running statistics of batch norms, are not moved twice.
    """

    name = "checkpoint_activations"
    treats = ("capacity",)
    keeps = "exact"

    def applies(self, evidence: Evidence) -> Verdict:
        """Memory must be nearly full, of activations."""
        memory = evidence.memory
        if not memory.limit_bytes or not memory.peak_bytes:
            return Verdict(False, "the memory of a step was not measured")
        full = memory.full
        part = memory.by_kind.activations / memory.peak_bytes
        reason = (
            f"a step takes {100 * full:.0f} % of the memory, {100 * part:.0f} % of it activations"
        )
        return Verdict(full >= FULL and part >= WORTH, reason)

    def predict(
        self, evidence: Evidence, settings: Settings | None = None, accepted: Setup = AS_IS
    ) -> Gain:
        """A slower step: one more forward pass."""
        step, forward = evidence.steps.mean_s, evidence.compute.forward_s
        slower = 1 / (1 + forward / step) if step else 0.8
        return Gain(slower, 0.9 * slower, min(1.0, 1.1 * slower))

    def setup(self, base: Setup, settings: Settings) -> Setup:
        """Each block of the longest list of modules is checkpointed."""
        return replace(base, checkpointed=True)
