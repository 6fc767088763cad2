"""validate_less: validation every few times."""

from __future__ import annotations

import math
from typing import final

from outpace.records.evidence import Evidence
from outpace.records.gain import NO_GAIN, Gain
from outpace.records.trial import Settings
from outpace.remedies.base import Remedy, Verdict
from outpace.remedies.model import gain_without
from outpace.seams.setup import AS_IS, Setup

WORTH = 0.1
"""share of the run from which validation is more than a check"""
AIM = 0.05
"""share of the run that it may keep"""


@final
class ValidateLess(Remedy):
    """Validate every few times, and once at the end.

    Helps where validation takes a good part of the run and nobody looks at every one of its
    figures.

    Advice, as it is the script's choice what validation decides: the weights at the end stay the
    same, but early stopping, the choice of the best checkpoint and a schedule that watches the
    validation loss then see fewer figures.
    """

    name = "validate_less"
    treats = ("validation",)
    keeps = "learning"
    advice_only = True
    gain_of = "run"

    def applies(self, evidence: Evidence) -> Verdict:
        """Validation must take a good part of the run, more than once."""
        share, epochs = evidence.share("validation"), evidence.input.epochs
        if share < WORTH:
            return Verdict(False, f"validation takes {100 * share:.1f} % of the run")
        if evidence.run.validations == 1:
            return Verdict(False, "the run has one validation")
        if evidence.run.validations is None and epochs is not None and epochs < 2:
            return Verdict(False, "the run has one epoch")
        return Verdict(True, f"validation takes {100 * share:.0f} % of the run")

    def settings(self, evidence: Evidence) -> Settings:
        """So seldom that it takes a twentieth of the run."""
        share = evidence.share("validation")
        every = math.ceil(share / AIM) if share else 1
        most = evidence.run.validations or evidence.input.epochs or every
        return {"every": max(1, min(every, most))}

    def predict(
        self, evidence: Evidence, settings: Settings | None = None, accepted: Setup = AS_IS
    ) -> Gain:
        """All but one in ``every`` validations are saved."""
        every = int((settings or self.settings(evidence))["every"])
        saved = evidence.share("validation") * (1 - 1 / max(1, every))
        return gain_without(saved, 0.8 * saved, saved) if saved else NO_GAIN
