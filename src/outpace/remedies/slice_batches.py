"""slice_batches: draw a batch at once instead of sample by sample."""

from __future__ import annotations

from dataclasses import replace
from typing import final

from outpace.records.evidence import Evidence
from outpace.records.trial import Settings
from outpace.remedies.base import Remedy, Verdict
from outpace.remedies.edits import draw_slices, made_here
from outpace.seams.setup import Executor, Feed, Setup

OTHERS_HERE = "samples depend on how many threads torch has: they are others without workers"


@final
class SliceBatches(Remedy):
    """Draw ``dataset[indices]`` once a batch instead of ``dataset[i]`` for every sample.

    Found by trial to equal the collated samples bit for bit, and checked again on the first batches
    of every run, now and then later on, and on the first of every epoch; where it differs there,
    samples are drawn as before. A person would give the DataLoader a batch sampler and
    ``batch_size=None``.

    Not where the data set or the collate function decides something by what a sample is, as by an
    ``if`` on its numbers: a slice would decide that for all of a batch.

    Helps where samples are rows of arrays that are already in memory: what they cost is that they
    are taken one by one. Does nothing for samples that are read or decoded each for itself.
    Keeps every bit.
    """

    name = "slice_batches"
    treats = ("collate", "augment", "parse", "ipc")
    keeps = "exact"
    stage = 0

    def applies(self, evidence: Evidence) -> Verdict:
        """A slice must have been found equal to the collated samples."""
        data = evidence.input
        if data.kind != "loader":
            return Verdict(False, "batches do not come from a DataLoader over a map-style data set")
        if not data.sliceable or data.slice_s is None:
            return Verdict(False, data.why_not_sliceable or "slicing was not tried")
        if data.others_here:
            return Verdict(False, OTHERS_HERE)
        one, other = 1e3 * data.slice_s, 1e3 * data.fetch_s
        reason = f"a slice takes {one:.2f} ms a batch, sample by sample it is {other:.2f} ms"
        return Verdict(data.slice_s < data.fetch_s, reason)

    def setup(self, base: Setup, settings: Settings) -> Setup:
        """Batches are sliced in the training thread, or by the thread that works ahead."""
        feed = replace(base.feed, fetch="slice", executor=beside(base.feed), workers=0)
        return replace(base, feed=replace(feed, persistent=False))

    def redraws(self, evidence: Evidence) -> bool:
        """Random samples of another loader, whose workers are given up too, draw elsewhere."""
        return evidence.input.others_random

    def edit(self, source: str, evidence: Evidence, settings: Settings) -> str:
        """A batch sampler in the sampler's place."""
        data = evidence.input
        return made_here(source, draw_slices(source, data.where), data.where, data.workers)


def beside(feed: Feed) -> Executor:
    """Who makes batches that cost next to nothing: nobody but a thread that is there already."""
    return "ahead" if feed.executor in ("ahead", "threads") else "inline"
