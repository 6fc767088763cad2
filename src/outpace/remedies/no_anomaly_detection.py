"""no_anomaly_detection: training without the search for the operator that makes a NaN."""

from __future__ import annotations

from dataclasses import replace
from typing import final

from outpace.records.evidence import Evidence
from outpace.records.trial import Settings
from outpace.remedies.base import Remedy, Verdict
from outpace.remedies.edits import without_anomaly_detection
from outpace.seams.setup import Setup


@final
class NoAnomalyDetection(Remedy):
    """Train with torch's anomaly detection off, where the script has left it on.

    It is meant for finding the operator whose gradient is NaN: each operator of a forward pass keeps the
    lines that called it, and each gradient is looked through. Where operators are small that takes several
    times as long as they do.

    Not where the script catches what a backward pass raises and goes on: that is its guard against a NaN.

    The same bits. A NaN in a gradient is no longer an error, but a loss that is not finite is still
    told, with the module that made it first.
    """

    name = "no_anomaly_detection"
    treats = ("dispatch",)
    keeps = "exact"
    probed = True

    def applies(self, evidence: Evidence) -> Verdict:
        """The script must train under it, and end where it finds a NaN."""
        if not evidence.compute.anomaly_detection:
            return Verdict(False, "torch's anomaly detection is off")
        if evidence.compute.backward_tried:
            return Verdict(
                False, "the script goes on where a backward pass fails, as with a NaN that is found"
            )
        return Verdict(True, "torch's anomaly detection is on, which is for debugging")

    def setup(self, base: Setup, settings: Settings) -> Setup:
        """Off, whatever the script sets."""
        return replace(base, no_anomaly_detection=True)

    def edit(self, source: str, evidence: Evidence, settings: Settings) -> str:
        """The script no longer turns it on."""
        return without_anomaly_detection(source)
