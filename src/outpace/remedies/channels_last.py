"""channels_last: images with their channels innermost in memory."""

from __future__ import annotations

from dataclasses import replace
from typing import final

from outpace.records.evidence import Evidence
from outpace.records.trial import Settings
from outpace.remedies.base import Remedy, Verdict
from outpace.remedies.edits import add_import, after_model
from outpace.seams.setup import Setup


@final
class ChannelsLast(Remedy):
    """Lay images and convolution weights out with the channels innermost.

    Convolutions then read what they combine from neighbouring addresses, and need no reordering of
    their own. Helps convolutional networks, most of all on large batches and together with bf16.
    It may harm small ones, and beside bf16 too, so each combination is measured.

    The mathematics is the same, sums are taken in another order: quality is proven.
    """

    name = "channels_last"
    treats = ("arithmetic", "bandwidth")
    keeps = "numerics"
    probed = True

    def applies(self, evidence: Evidence) -> Verdict:
        """There must be convolutions that are not laid out so already."""
        compute = evidence.compute
        if not compute.convolutions:
            return Verdict(False, "the model has no convolutions")
        if compute.laid_flat:
            return Verdict(
                False, "the script lays weights out flat by views, which need their own order"
            )
        if compute.channels_last:
            return Verdict(False, "the weights are laid out so already")
        return Verdict(True, f"the model has {compute.convolutions} convolutions")

    def setup(self, base: Setup, settings: Settings) -> Setup:
        """Weights and image batches are laid out channels last."""
        return replace(base, channels_last=True)

    def edit(self, source: str, evidence: Evidence, settings: Settings) -> str:
        """The weights are laid out where the model is made: convolutions take the layout from them.

        Not where there are some in three dimensions: torch takes their weights for images, and fails. Nor of
        one of several models.
        """
        if evidence.compute.volumes or evidence.compute.models > 1:
            return source
        line = "{name} = {name}.to(memory_format=torch.channels_last)"
        changed = after_model(source, evidence.compute.where, line)
        return source if changed == source else add_import(changed, "torch")
