"""A remedy with one choice of settings, to be tried."""

from __future__ import annotations

from dataclasses import dataclass

from outpace.records.evidence import Evidence
from outpace.records.finding import Keeps
from outpace.records.gain import Gain
from outpace.records.trial import Settings, Trial
from outpace.remedies.base import Remedy
from outpace.seams.setup import AS_IS, Setup


@dataclass(frozen=True)
class Candidate:
    """A remedy with one choice of settings."""

    remedy: Remedy
    settings: Settings
    keeps: Keeps
    reason: str

    def on(self, base: Setup) -> Setup:
        """``base`` with this remedy."""
        return self.remedy.setup(base, self.settings)

    def predict(self, evidence: Evidence, accepted: Setup = AS_IS) -> Gain:
        """Speed-up of a steady step on top of ``accepted``."""
        return self.remedy.predict(evidence, self.settings, accepted)

    def trial(
        self,
        predicted: Gain,
        measured: Gain | None,
        accepted: bool,
        reason: str,
        seconds: float = 0.0,
    ) -> Trial:
        """What came of trying it."""
        name = self.remedy.name
        return Trial(
            name, self.settings, self.keeps, predicted, measured, accepted, reason, seconds
        )
