"""no_sync_items: losses are read when they are shown, not every step."""

from __future__ import annotations

from typing import final

from outpace.records.evidence import Evidence
from outpace.records.gain import Gain
from outpace.records.trial import Settings
from outpace.remedies.base import Remedy, Verdict
from outpace.remedies.edits import keep_on_device
from outpace.remedies.model import gain_without
from outpace.seams.setup import AS_IS, Setup

WORTH = 0.01
"""share of the run that waiting must take"""


@final
class NoSyncItems(Remedy):
    """Read losses and metrics when they are shown, instead of every step.

    ``loss.item()`` makes the host wait until the device has computed it, so that the device then
    waits for the host. Add up ``loss.detach()`` on the device, and read the sum where it is
    printed. On a CPU a value is there when it is asked for, and nothing is gained.

    Advice: whether a value is only logged, or decides what the script does next, cannot be seen
    from outside. Keeps every bit of the training; the sum is rounded in float32 instead of
    Python's float64.
    """

    name = "no_sync_items"
    treats = ("sync",)
    keeps = "exact"
    advice_only = True

    def applies(self, evidence: Evidence) -> Verdict:
        """Reads that take time, every step."""
        often = [s for s in evidence.syncs if s.count >= 0.5 and "." not in s.name]
        if not often:
            return Verdict(False, "no value is read from the device in every step")
        worst = max(often, key=lambda s: s.seconds)
        share = evidence.share("sync")
        place = f" at {worst.where}" if worst.where else ""
        reason = (
            f".{worst.name}(){place} is called {worst.count:.1f} times a step; reading values "
            f"takes {100 * share:.1f} % of the run"
        )
        measured = evidence.arm("sync_free")
        return Verdict(share >= WORTH or (measured is not None and measured.gain.is_gain), reason)

    def predict(
        self, evidence: Evidence, settings: Settings | None = None, accepted: Setup = AS_IS
    ) -> Gain:
        """What the step gained when values were not read, or all of the time that reading took."""
        measured = evidence.arm("sync_free")
        if measured is not None:
            return measured.gain
        share = evidence.share("sync")
        return gain_without(0.5 * share, 0.0, share)

    def edit(self, source: str, evidence: Evidence, settings: Settings) -> str:
        """``total += loss.detach()``."""
        where = next((s.where for s in evidence.syncs if s.name == "item"), None)
        return keep_on_device(source, where)
