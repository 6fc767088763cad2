"""compile_model: torch.compile on the root module."""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import final

from outpace.records.evidence import Evidence
from outpace.records.gain import NO_GAIN, Gain
from outpace.records.trial import Settings
from outpace.remedies.base import Remedy, Verdict
from outpace.remedies.edits import after_model
from outpace.seams.setup import AS_IS, Setup

COMPILE_S = (12.0, 30.0, 60.0)
"""seconds of compiling as seen on two cores: short, usual, long"""
DISPATCH_SAVED = (0.1, 0.5, 0.8)
"""part of the fixed cost of a step that fusing operators saves"""
MOST_OF_RUN = 0.02
"""of the run may go into compiling"""


@final
class CompileModel(Remedy):
    """Compile the model with torch.compile.

    Neighbouring operators are fused, so that fewer are called and fewer intermediate results are
    written. Helps where many small operators cost more to call than to run, and on GPUs. Gives
    little to a few large matrix products.

    Compiling takes 12 to 60 seconds and more, once a process and again for other shapes; these are
    charged against the run, and short runs are not compiled. Fused operators round in another
    order, and dropout draws other random numbers, so quality is proven.
    """

    name = "compile_model"
    treats = ("dispatch", "arithmetic", "bandwidth")
    keeps = "numerics"

    def applies(self, evidence: Evidence) -> Verdict:
        """The run must be long enough to win the compile time back."""
        compute, length = evidence.compute, evidence.run.estimated_s
        if compute.compiled:
            return Verdict(False, "the model is compiled already")
        if compute.root is None:
            return Verdict(False, "no model was seen")
        if compute.device == "cpu" and not any(map(shutil.which, ("c++", "g++", "clang++"))):
            return Verdict(False, "compiling for the CPU needs a C++ compiler, and none was found")
        if length is None:
            return Verdict(
                False, "the run's length is not known, and compiling takes up to a minute"
            )
        usual = COMPILE_S[1]
        reason = f"compiling takes about {usual:.0f} s, the run {length:.0f} s"
        return Verdict(usual < MOST_OF_RUN * length, reason)

    def predict(
        self, evidence: Evidence, settings: Settings | None = None, accepted: Setup = AS_IS
    ) -> Gain:
        """A part of the step's fixed cost is saved, the compile time is lost."""
        measured = evidence.arm(self.name)
        length, step = evidence.run.estimated_s, evidence.steps.mean_s
        if not length or not step or accepted.compiled:
            return NO_GAIN
        fixed = min(evidence.compute.fixed_s or 0.0, evidence.free_s) / step
        low, usual, high = (
            _whole(length, fixed * saved, seconds)
            for saved, seconds in zip(DISPATCH_SAVED, reversed(COMPILE_S), strict=True)
        )
        if measured is not None:
            gain = measured.gain
            low, usual, high = (
                _whole(length, 1 - 1 / max(g, 0.1), s)
                for g, s in zip(
                    (gain.low, gain.speedup, gain.high), reversed(COMPILE_S), strict=True
                )
            )
        return Gain(usual, min(low, usual), max(high, usual))

    def setup(self, base: Setup, settings: Settings) -> Setup:
        """The root module's forward is compiled at its first call."""
        return replace(base, compiled=True)

    def edit(self, source: str, evidence: Evidence, settings: Settings) -> str:
        """``model.compile()``, which leaves the names in the state dict as they are."""
        if evidence.compute.models > 1:
            return source  # all of them are compiled by the recipe
        return after_model(source, evidence.compute.where, "{name}.compile()")


def _whole(length: float, saved: float, compiling: float) -> float:
    """Speed-up of a run of ``length`` seconds whose steps save a share, less the compiling."""
    return length / (length * (1 - saved) + compiling)
