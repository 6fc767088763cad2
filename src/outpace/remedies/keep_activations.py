"""keep_activations: activations that the script has computed again are kept."""

from __future__ import annotations

from dataclasses import replace
from typing import final

from outpace.records.evidence import Evidence
from outpace.records.finding import Keeps
from outpace.records.trial import Settings
from outpace.remedies.base import Remedy, Verdict
from outpace.remedies.checkpoint_activations import FULL
from outpace.remedies.edits import without_checkpointing
from outpace.seams.setup import Setup


@final
class KeepActivations(Remedy):
    """Keep activations for the backward pass, where the script computes them again and need not.

    `torch.utils.checkpoint` is for a training that would not fit otherwise. It costs another forward pass of
    what is checkpointed, about a quarter of a step. Settings are copied from larger models, and machines
    change: where memory has room for the activations, that time is spent for nothing.

    Offered only where all of them fit into four fifths of the memory, which bounds a training as much as the
    device's own. The same bits, unless a forward pass moves more than activations: the running statistics of
    batch norms, which change once in a step then instead of twice, or a generator of random numbers that the
    script does not have kept (``preserve_rng_state=False``). There quality is proven.
    """

    name = "keep_activations"
    treats = ("arithmetic",)
    keeps = "exact"
    probed = True

    def applies(self, evidence: Evidence) -> Verdict:
        """The script must compute some again, and memory must have room for them."""
        compute, memory = evidence.compute, evidence.memory
        if compute.recomputed_where is None:
            return Verdict(False, "no activations are computed again (torch.utils.checkpoint)")
        taken = evidence.all_kept_bytes
        if taken is None or not memory.limit_bytes:
            return Verdict(False, "the memory of a step was not measured")
        full = taken / memory.limit_bytes
        reason = (
            f"with all activations kept a step takes at most {taken / 2**30:.2f} GiB, "
            f"{100 * full:.0f} % of the memory"
        )
        return Verdict(full <= FULL, reason)

    def kept(self, evidence: Evidence, settings: Settings | None = None) -> Keeps:
        """Every bit, where a forward pass leaves nothing behind."""
        return "numerics" if evidence.compute.recomputed_moves else "exact"

    def setup(self, base: Setup, settings: Settings) -> Setup:
        """None are computed again, whatever the script asks."""
        return replace(base, kept_activations=True)

    def edit(self, source: str, evidence: Evidence, settings: Settings) -> str:
        """The functions are called as they are."""
        return without_checkpointing(source)
