"""prefetch: make batches ahead in a thread."""

from __future__ import annotations

from dataclasses import replace
from typing import final

from outpace.records.evidence import Evidence
from outpace.records.finding import Keeps
from outpace.records.trial import Settings
from outpace.remedies.base import Remedy, Verdict
from outpace.seams.setup import Setup

DEPTH = 3


@final
class Prefetch(Remedy):
    """Make the next batches in one thread while the step computes.

    The thread draws the samples in the script's own order. So the bits stay the same, random
    augmentation included, as long as the step itself does not draw from the generators that the
    data set draws from (dropout and torch-based augmentation both draw from torch's).

    Helps where making a batch releases the GIL (decoding, numpy, waiting) or the step does.
    Needs no further process and no copy between processes.
    """

    name = "prefetch"
    treats = ("storage", "parse", "augment", "collate")
    keeps = "exact"
    stage = 2

    def applies(self, evidence: Evidence) -> Verdict:
        """There must be a DataLoader without workers."""
        data = evidence.input
        if data.kind not in ("loader", "iterable"):
            return Verdict(False, "batches do not come from a DataLoader")
        if data.workers:
            return Verdict(False, f"{data.workers} workers make batches ahead already")
        shared = sorted(set(data.random_streams) & set(data.step_streams))
        if shared:
            return Verdict(True, f"batch and step both draw from the generator of {shared[0]}")
        return Verdict(True, "batches can be made while the step computes, in the same order")

    def settings(self, evidence: Evidence) -> Settings:
        """Batches made ahead."""
        return {"batches": DEPTH}

    def setup(self, base: Setup, settings: Settings) -> Setup:
        """One thread works ahead."""
        feed = replace(base.feed, executor="ahead", workers=0, prefetch=int(settings["batches"]))
        return replace(base, feed=feed)

    def kept(self, evidence: Evidence) -> Keeps:
        """Exact where batch and step draw from different generators."""
        data = evidence.input
        return "numerics" if set(data.random_streams) & set(data.step_streams) else "exact"
