"""async_checkpoint: checkpoints are written beside the training."""

from __future__ import annotations

from typing import final

from outpace.records.evidence import Evidence
from outpace.records.gain import Gain
from outpace.records.trial import Settings
from outpace.remedies.base import Remedy, Verdict
from outpace.remedies.model import gain_without
from outpace.seams.setup import AS_IS, Setup

WORTH = 0.02
"""share of the run that checkpoints must take"""
SAVED = (0.4, 0.8, 0.95)
"""part of a checkpoint's time that a thread can take over: all but the copy"""


@final
class AsyncCheckpoint(Remedy):
    """Copy the state, and let a thread write it while training goes on.

    ``torch.distributed.checkpoint.async_save`` does it, or a thread that is given a copy of the
    state dict. Helps where checkpoints are large or storage is slow. Costs the memory of the copy.

    Advice, as a checkpoint that is still being written when the script reads or renames it would be
    lost. Keeps every bit.
    """

    name = "async_checkpoint"
    treats = ("checkpoint",)
    keeps = "exact"
    advice_only = True
    gain_of = "run"

    def applies(self, evidence: Evidence) -> Verdict:
        """Checkpoints must take a visible part of the run."""
        share = evidence.share("checkpoint")
        return Verdict(share >= WORTH, f"checkpoints take {100 * share:.1f} % of the run")

    def predict(
        self, evidence: Evidence, settings: Settings | None = None, accepted: Setup = AS_IS
    ) -> Gain:
        """All but the copy, in the whole run."""
        low, usual, high = (evidence.share("checkpoint") * part for part in SAVED)
        return gain_without(usual, low, high)
