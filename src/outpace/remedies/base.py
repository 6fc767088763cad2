"""What a remedy is.

A remedy says whether it applies to what was measured, with which settings, what it is predicted to
give, how the seams run it (a changed Setup, see `outpace.seams.setup`) and what a person would
change in the script. Undoing a remedy is going back to the Setup without it.
"""

from __future__ import annotations

import difflib
import inspect
import re
from abc import ABC, abstractmethod
from dataclasses import replace
from typing import ClassVar, NamedTuple

from outpace.records.arm import FED, TOO_FEW
from outpace.records.evidence import Evidence
from outpace.records.finding import GainOf, Keeps
from outpace.records.gain import Gain
from outpace.records.trial import Settings
from outpace.remedies.model import predicted_gain
from outpace.seams.setup import AS_IS, Setup

LINES = re.compile(r"[^\n]*\n|[^\n]+")
"""of a text, as those who apply patches have them"""


class Verdict(NamedTuple):
    """Whether a remedy applies, and why or why not in words for the user."""

    yes: bool
    reason: str


class Remedy(ABC):
    """A change against a cause. Subclasses are final: one file, one remedy."""

    name: ClassVar[str]
    treats: ClassVar[tuple[str, ...]]
    """causes (see records.finding and diagnose.bottlenecks)"""
    keeps: ClassVar[Keeps]
    """the most that it keeps; ``kept`` may lower it"""
    stage: ClassVar[int] = 1
    """when it is tried: 0 less work, 1 cheaper work, 2 work side by side, 3 new processes"""
    advice_only: ClassVar[bool] = False
    """it is told, with its gain, and not applied"""
    probed: ClassVar[bool] = False
    """`diagnose` measures an arm of it, so that its prediction rests on a measurement"""

    crowds: ClassVar[bool] = False
    """it takes cores from what makes batches, or gives it some: its arm is measured beside that too"""

    gain_of: ClassVar[GainOf] = "steps"
    """what it makes faster; that of "epochs" only whole ones, in new processes, measure"""

    least: ClassVar[float] = 1.0
    """measured speed-up below which it is not worth what it costs besides time"""

    @abstractmethod
    def applies(self, evidence: Evidence) -> Verdict:
        """Whether it can help here."""

    def verdict(self, evidence: Evidence) -> Verdict:
        """The same; not where the script did not bear it in an experiment."""
        for arm in evidence.arms:
            if arm.name == self.name and arm.failed not in (None, TOO_FEW):
                return Verdict(False, f"in an experiment {arm.failed}")
        return self.applies(evidence)

    def settings(self, evidence: Evidence) -> Settings:
        """The settings to try."""
        return {}

    def alternatives(self, evidence: Evidence) -> list[Settings]:
        """All settings worth a trial; the first is tried first."""
        return [self.settings(evidence)]

    def setup(self, base: Setup, settings: Settings) -> Setup:
        """``base`` with this remedy in it; reads each setting that there may be, where base is AS_IS."""
        return base

    def kept(self, evidence: Evidence, settings: Settings | None = None) -> Keeps:
        """What it keeps on this training, by its first settings where none are given."""
        return "numerics" if self.keeps == "exact" and self.redraws(evidence) else self.keeps

    def redraws(self, evidence: Evidence) -> bool:
        """Whether random numbers are dealt out in another order: what is as good is harder to show."""
        return False

    def predict(
        self, evidence: Evidence, settings: Settings | None = None, accepted: Setup = AS_IS
    ) -> Gain:
        """Speed-up of what `gain_of` says, on top of a Setup that is accepted already."""
        chosen = self.settings(evidence) if settings is None else settings
        after = self.setup(accepted, chosen)
        if self.crowds and accepted == AS_IS:
            for name, setup in self.fed_arms(evidence).items():
                if setup == after and (arm := evidence.arm(name)) is not None:
                    return Gain(arm.gain.speedup, arm.gain.low, arm.gain.high)
        return predicted_gain(evidence, accepted, after)

    def arm(self, evidence: Evidence) -> dict[str, Setup]:
        """The arm that `diagnose` measures, with free input where input can be taken away."""
        base = replace(AS_IS, free_input=evidence.input.kind in ("loader", "iterable"))
        return {self.name: self.setup(base, self.settings(evidence))}

    def fed_arms(self, evidence: Evidence) -> dict[str, Setup]:
        """Its arms while batches are made as ever; none where these cost next to nothing."""
        if not self.crowds or not evidence.makes_batches:
            return {}
        return {
            name + FED: replace(setup, free_input=False)
            for name, setup in self.arm(evidence).items()
        }

    def edit(self, source: str, evidence: Evidence, settings: Settings) -> str:
        """The script's text as a person would change it; unchanged where no edit is known."""
        return source

    def diff(
        self, source: str, evidence: Evidence, settings: Settings, name: str = "train.py"
    ) -> str:
        """The edit as a unified diff; empty where no edit is known."""
        changed = self.edit(source, evidence, settings)
        return unified(source, changed, name)

    @classmethod
    def page(cls) -> str:
        """The docstring: what `outpace remedies NAME` prints."""
        return inspect.cleandoc(cls.__doc__ or "")


def unified(before: str, after: str, name: str) -> str:
    """Two texts as a unified diff, that ``patch`` and ``git apply`` take."""
    one, other = (LINES.findall(text) for text in (before, after))
    end = "\t" * (" " in name)  # else a name is over at its first space
    lines = difflib.unified_diff(one, other, f"a/{name}{end}", f"b/{name}{end}")
    return "".join(
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines
    )
